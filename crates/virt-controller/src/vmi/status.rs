//! What the controller says about a VMI: its part of the status, whole, at every write.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::conditions::{self, Statement};
use kubevirt_api::quantity::Amount;
use kubevirt_api::vmi_status::{
    MemoryStatus, VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Type,
    VirtualMachineInstanceMigrationTransport, VirtualMachineInstancePhase as Phase,
    VirtualMachineInstancePhaseTransitionTimestamp as Transition, VirtualMachineInstanceStatus,
};
use kubevirt_api::{API_VERSION, VirtualMachineInstance, labels, reasons};
use reconcile::Key;
use serde_json::{Value, json};

use super::observe::{Observed, phase as seen_phase};
use super::plan::{PodState, pod_state};
use crate::view::LauncherPod;

const POD_SCHEDULED: &str = "PodScheduled";
const READY: &str = "Ready";
/// A container that waits for one of these is getting on.
const NORMAL_WAITS: [&str; 3] = ["ContainerCreating", "PodInitializing", ""];

/// What the pass did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Launcher image and overhead in bytes of a pod that was made or is known to exist.
    pub(super) pod: Option<PodFacts>,
    /// Message of what the server or the VMI itself has against the pod.
    pub(super) failure: Option<String>,
    /// What the VMI asks for and this version cannot run.
    pub(super) unsupported: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodFacts {
    pub(super) image: String,
    pub(super) overhead: u64,
}

/// The status to be, from what was seen, planned and done.
pub(super) fn render(seen: &Observed, phase: &Phase, done: &Done) -> VirtualMachineInstanceStatus {
    let mut status = seen.vmi.status.clone().unwrap_or_default();
    let now = Time(seen.now);
    if status.phase.as_ref() != Some(phase) && *phase != Phase::Unset {
        status.phase = Some(phase.clone());
        status.phase_transition_timestamps.push(Transition {
            phase: Some(phase.clone()),
            phase_transition_timestamp: Some(now.clone()),
        });
    }
    if let Some(facts) = &done.pod {
        status.launcher_container_image_version = Some(facts.image.clone());
        let overhead = Amount::of(facts.overhead).to_binary();
        status
            .memory
            .get_or_insert_with(MemoryStatus::default)
            .memory_overhead = Some(overhead);
        status.migration_transport = Some(VirtualMachineInstanceMigrationTransport::Unix);
        status.runtime_user = u64::try_from(launcher_pod::RUNTIME_USER).ok();
    }
    if *phase == Phase::Scheduled
        && status.node_name.is_none()
        && let Some(pod) = &seen.pod
    {
        hand_over(&mut status, pod);
    }
    status.conditions = render_conditions(seen, phase, done, &status.conditions, &now);
    status
}

/// The piece that this controller owns, or nothing when it is there already.
pub(super) fn fragment(
    vmi: &VirtualMachineInstance,
    key: &Key,
    status: &VirtualMachineInstanceStatus,
) -> Option<Value> {
    let before = vmi.status.clone().unwrap_or_default();
    if before == *status {
        return None;
    }
    let mut owned = json!({
        "conditions": status.conditions,
        "phaseTransitionTimestamps": status.phase_transition_timestamps,
    });
    let overhead = status
        .memory
        .as_ref()
        .and_then(|memory| memory.memory_overhead.clone());
    let pods = (!status.active_pods.is_empty()).then_some(&status.active_pods);
    let optional = [
        ("phase", json!(status.phase)),
        ("nodeName", json!(status.node_name)),
        ("activePods", json!(pods)),
        ("qosClass", json!(status.qos_class)),
        ("runtimeUser", json!(status.runtime_user)),
        (
            "launcherContainerImageVersion",
            json!(status.launcher_container_image_version),
        ),
        ("migrationTransport", json!(status.migration_transport)),
        (
            "memory",
            overhead.map_or(Value::Null, |overhead| json!({"memoryOverhead": overhead})),
        ),
    ];
    for (name, value) in optional.into_iter().filter(|(_, value)| !value.is_null()) {
        owned[name] = value;
    }
    let mut metadata = json!({
        "name": key.name,
        "namespace": key.namespace,
        "resourceVersion": vmi.metadata.resource_version,
    });
    if let Some(node) = &status.node_name {
        metadata["labels"] = json!({labels::NODE_NAME: node});
    }
    Some(json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachineInstance::KIND,
        "metadata": metadata,
        "status": owned,
    }))
}

/// From here on the handler of that node is in charge.
fn hand_over(status: &mut VirtualMachineInstanceStatus, pod: &LauncherPod) {
    let node = pod.spec.node_name.clone().unwrap_or_default();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    status.active_pods.insert(uid, node.clone());
    status.node_name = Some(node);
    status.qos_class.clone_from(&pod.status.qos_class);
}

fn render_conditions(
    seen: &Observed,
    phase: &Phase,
    done: &Done,
    before: &[VirtualMachineInstanceCondition],
    now: &Time,
) -> Vec<VirtualMachineInstanceCondition> {
    let mut all = before.to_vec();
    let pod = seen.pod.as_deref();
    let has_pod = pod.is_some() || done.pod.is_some();
    set_ready(&mut all, seen, has_pod, phase, now);

    if !is_ours(phase) {
        return all;
    }
    let waits = pod.and_then(waiting);
    let failed = done
        .failure
        .as_deref()
        .map(|message| (reasons::vmi::FAILED_CREATE, message));
    let unsupported = done
        .unsupported
        .as_deref()
        .map(|message| (reasons::vmi::FEATURE_NOT_SUPPORTED, message));
    match unsupported.or(failed).or(waits) {
        Some((reason, message)) => {
            let says = Statement::fails(reason, message);
            conditions::set(&mut all, Type::Synchronized, &says, now);
        }
        // What the handler complained of is the handler's to take back.
        None if !handler_complains(before) => conditions::remove(&mut all, &Type::Synchronized),
        None => {}
    }
    let scheduled = Type::from(POD_SCHEDULED);
    if let Some(message) = &done.unsupported {
        // No node is right for it, which is what tables of VMs show.
        let says = Statement::fails(reasons::vmi::UNSCHEDULABLE, message);
        conditions::set(&mut all, scheduled, &says, now);
        return all;
    }
    match pod.and_then(|pod| pod_condition(pod, POD_SCHEDULED)) {
        Some(condition) if condition.status == conditions::FALSE => {
            let says = copied(condition);
            conditions::set(&mut all, scheduled, &says, now);
        }
        _ => conditions::remove(&mut all, &scheduled),
    }
    all
}

/// Reasons of complaints that this controller makes: its own, and those of a kubelet about a
/// container that does not start. All others come from the node's handler.
const COMPLAINTS: [&str; 10] = [
    reasons::vmi::FAILED_CREATE,
    reasons::vmi::FEATURE_NOT_SUPPORTED,
    reasons::vmi::ERR_IMAGE_PULL,
    reasons::vmi::IMAGE_PULL_BACK_OFF,
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

fn handler_complains(before: &[VirtualMachineInstanceCondition]) -> bool {
    let said = conditions::find(before, &Type::Synchronized);
    let reason = said.map(|said| said.reason.as_deref().unwrap_or_default());
    reason.is_some_and(|reason| !COMPLAINTS.contains(&reason))
}

/// Says whether the guest can be used. Once it runs the handler says so, who alone knows whether
/// it is paused; two writers of different minds would never come to rest.
fn set_ready(
    all: &mut Vec<VirtualMachineInstanceCondition>,
    seen: &Observed,
    has_pod: bool,
    phase: &Phase,
    now: &Time,
) {
    let is_said = conditions::find(all, &Type::Ready).is_some();
    let is_final = matches!(phase, Phase::Succeeded | Phase::Failed);
    let is_handlers = *phase == Phase::Running || (is_final && *phase == seen_phase(&seen.vmi));
    if is_handlers && is_said {
        return;
    }
    let pod = seen.pod.as_deref();
    let is_terminating = pod_state(pod) == PodState::Terminating;
    let ready = pod.and_then(|pod| pod_condition(pod, READY));
    let says = match (has_pod, ready) {
        _ if is_final => Statement::fails(reasons::vmi::GUEST_NOT_RUNNING, "the guest has ended"),
        (false, _) => Statement::fails(reasons::vmi::POD_NOT_EXISTS, "there is no pod"),
        (true, _) if is_terminating => {
            Statement::fails(reasons::vmi::POD_TERMINATING, "the pod is being deleted")
        }
        (true, _) if *phase != Phase::Running => {
            Statement::fails(reasons::vmi::GUEST_NOT_RUNNING, "the guest is not running")
        }
        (true, Some(condition)) => copied(condition),
        (true, None) => Statement::fails(
            reasons::vmi::POD_CONDITION_MISSING,
            "the pod says nothing yet",
        ),
    };
    conditions::set(all, Type::Ready, &says, now);
}

/// Before the handover, what stands in the way is this controller's to tell.
fn is_ours(phase: &Phase) -> bool {
    matches!(phase, Phase::Unset | Phase::Pending | Phase::Scheduling)
}

/// Why a container does not start, if it is more than a matter of time.
fn waiting(pod: &LauncherPod) -> Option<(&str, &str)> {
    let containers = pod.status.container_statuses.as_deref()?;
    containers.iter().find_map(|container: &ContainerStatus| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or_default();
        (!NORMAL_WAITS.contains(&reason)).then_some((reason, message))
    })
}

fn pod_condition<'a>(pod: &'a LauncherPod, kind: &str) -> Option<&'a PodCondition> {
    let all = pod.status.conditions.as_deref()?;
    all.iter().find(|condition| condition.type_ == kind)
}

fn copied(condition: &PodCondition) -> Statement<'_> {
    Statement {
        status: &condition.status,
        reason: condition.reason.as_deref().unwrap_or_default(),
        message: condition.message.as_deref().unwrap_or_default(),
    }
}
