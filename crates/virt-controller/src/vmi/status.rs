//! What the controller says about a VMI: its part of the status, whole, at every write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::conditions::{self, ConditionValue};
use kubevirt_api::quantity::Amount;
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Type,
    VirtualMachineInstanceMigrationTransport, VirtualMachineInstancePhase as Phase,
    VirtualMachineInstancePhaseTransitionTimestamp as Transition,
};
use kubevirt_api::{API_VERSION, VirtualMachineInstance, labels};
use reasons::Reason;
use reconcile::Key;
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::{DataVolumes, Plan, PodState, Problem, is_ready, pod_state};
use crate::view::{Container, ContainerState, Guest, GuestStatus, LauncherPod, PodSays};

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
    /// It cannot get a pod, but another VMI in its place can.
    pub(super) is_given_up: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodFacts {
    pub(super) image: String,
    pub(super) overhead: u64,
}

/// The status to be, from what was seen, planned and done.
pub(super) fn render(seen: &Observed, plan: &Plan, done: &Done) -> GuestStatus {
    let mut status = seen.vmi.status.clone();
    let now = Time(seen.now);
    let phase = if done.pod.is_some() {
        &Phase::Scheduling
    } else if done.is_given_up {
        &Phase::Failed
    } else {
        &plan.phase
    };
    if status.phase != *phase {
        status.phase = phase.clone();
        status.changes.push(Transition {
            phase: Some(phase.clone()),
            phase_transition_timestamp: Some(now.clone()),
        });
    }
    if done.is_given_up {
        status.reason = Some(Reason::FailedCreate.into());
    } else if let Some(reason) = plan.reason {
        status.reason = Some(reason.into());
    }
    if let Some(facts) = &done.pod {
        status.launcher_image = Some(facts.image.clone());
        status.memory_overhead = Some(Amount::of(facts.overhead).to_binary());
        status.migration_transport = Some(VirtualMachineInstanceMigrationTransport::Unix);
        status.runtime_user = u64::try_from(launcher_pod::RUNTIME_USER).ok();
    }
    if *phase == Phase::Scheduled
        && status.node_name.is_none()
        && let Some(pod) = &seen.pod
    {
        hand_over(&mut status, pod);
    }
    status.conditions = render_conditions(seen, plan, done, &status);
    status
}

/// The piece that this controller owns, or nothing when it is there already.
pub(super) fn fragment(vmi: &Guest, key: &Key, status: &GuestStatus) -> Option<Value> {
    if vmi.status == *status {
        return None;
    }
    let mut owned = json!({
        "conditions": status.conditions,
        "phaseTransitionTimestamps": status.changes,
    });
    let pods = (!status.active_pods.is_empty()).then_some(&status.active_pods);
    let phase = Some(&status.phase).filter(|phase| **phase != Phase::Unset);
    let overhead = status.memory_overhead.as_ref();
    let optional = [
        ("phase", json!(phase)),
        ("reason", json!(status.reason)),
        ("nodeName", json!(status.node_name)),
        ("activePods", json!(pods)),
        ("qosClass", json!(status.qos_class)),
        ("runtimeUser", json!(status.runtime_user)),
        (
            "launcherContainerImageVersion",
            json!(status.launcher_image),
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
fn hand_over(status: &mut GuestStatus, pod: &LauncherPod) {
    let node = pod.node_name.clone().unwrap_or_default();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    status.active_pods.insert(uid, node.clone());
    status.node_name = Some(node);
    status.qos_class.clone_from(&pod.qos_class);
}

fn render_conditions(
    seen: &Observed,
    plan: &Plan,
    done: &Done,
    status: &GuestStatus,
) -> Vec<VirtualMachineInstanceCondition> {
    let now = &Time(seen.now);
    let mut all = status.conditions.clone();
    let pod = seen.pod.as_deref();
    let has_pod = pod.is_some() || done.pod.is_some();
    set_ready(&mut all, seen, has_pod, &status.phase, now);
    match &plan.data_volumes {
        Some(DataVolumes::Ready) => {
            let says = ConditionValue {
                status: conditions::TRUE,
                reason: Reason::AllDVsReady.as_str(),
                message: "",
            };
            conditions::set(&mut all, Type::DataVolumesReady, &says, now);
        }
        Some(DataVolumes::NotReady(message)) => {
            let says = ConditionValue::fails(Reason::NotAllDVsReady, message);
            conditions::set(&mut all, Type::DataVolumesReady, &says, now);
        }
        None => {}
    }
    if plan.is_binding {
        conditions::set(&mut all, Type::Provisioning, &ConditionValue::holds(), now);
    } else {
        conditions::remove(&mut all, &Type::Provisioning);
    }
    let pod = pod.or(seen.binder.as_deref());
    if !is_ours(&status.phase) && plan.problem.is_none() && !done.is_given_up {
        return all;
    }
    let failed = done
        .failure
        .as_deref()
        .map(|message| (Reason::FailedCreate.as_str(), message));
    let problem = plan.problem.as_ref();
    let told = problem.map(|problem| (problem.reason.as_str(), problem.message.as_str()));
    match told.or(failed).or_else(|| pod.and_then(waiting)) {
        Some((reason, message)) => {
            let says = ConditionValue::fails(reason, message);
            conditions::set(&mut all, Type::Synchronized, &says, now);
        }
        // What the handler complained of is the handler's to take back.
        None if !handler_complains(&status.conditions) => {
            conditions::remove(&mut all, &Type::Synchronized);
        }
        None => {}
    }
    let scheduled = Type::from(POD_SCHEDULED);
    if let Some(Problem {
        message,
        is_unschedulable: true,
        ..
    }) = problem
    {
        let says = ConditionValue::fails(Reason::Unschedulable, message);
        conditions::set(&mut all, scheduled, &says, now);
        return all;
    }
    match pod.and_then(|pod| pod.says(POD_SCHEDULED)) {
        Some(condition) if condition.status == conditions::FALSE => {
            let says = copied(condition);
            conditions::set(&mut all, scheduled, &says, now);
        }
        _ => conditions::remove(&mut all, &scheduled),
    }
    all
}

/// Reasons of this controller's own complaints. It passes on those of a kubelet about a container, too;
/// all others come from the node's handler.
const COMPLAINTS: [Reason; 7] = [
    Reason::FailedCreate,
    Reason::FeatureNotSupported,
    Reason::FailedPvcNotFound,
    Reason::FailedDataVolumeImport,
    Reason::FailedGuaranteeResources,
    Reason::ContainerDiskMissing,
    Reason::ContainerDiskNotCopied,
];

fn handler_complains(before: &[VirtualMachineInstanceCondition]) -> bool {
    let said = conditions::find(before, &Type::Synchronized);
    let reason = said.map(|said| said.reason.as_deref().unwrap_or_default());
    let is_ours = |reason: &str| {
        let known = reason.parse::<Reason>();
        known.is_ok_and(|known| {
            COMPLAINTS.contains(&known) || Reason::CONTAINER_WAITS.contains(&known)
        })
    };
    reason.is_some_and(|reason| !is_ours(reason))
}

/// Says whether the guest can be used. Once it runs the handler says so, who alone knows whether
/// it is paused; two writers of different minds would never come to rest. But nobody hears a handler
/// whose node is cut off: that a pod is no longer ready is told here. A handler that is heard says the
/// same, and it alone takes it back.
fn set_ready(
    all: &mut Vec<VirtualMachineInstanceCondition>,
    seen: &Observed,
    has_pod: bool,
    phase: &Phase,
    now: &Time,
) {
    let is_said = conditions::find(all, &Type::Ready).is_some();
    let is_final = matches!(phase, Phase::Succeeded | Phase::Failed);
    let is_handlers = *phase == Phase::Running || (is_final && phase == seen.vmi.phase());
    let pod = seen.pod.as_deref();
    if is_handlers && is_said {
        let unready = pod.filter(|pod| is_ready(pod)).and_then(|pod| {
            let ready = pod.says(READY)?;
            (ready.status == conditions::FALSE).then_some(ready)
        });
        if let Some(unready) = unready
            && *phase == Phase::Running
            && conditions::is_true(all, &Type::Ready)
        {
            let (reason, message) = (unready.reason.as_deref(), unready.message.as_deref());
            let says = ConditionValue::like_its_pod(reason, message);
            conditions::set(all, Type::Ready, &says, now);
        }
        return;
    }
    let is_terminating = pod_state(pod) == PodState::Terminating;
    let ready = pod.and_then(|pod| pod.says(READY));
    let says = match (has_pod, ready) {
        _ if is_final => ConditionValue::fails(Reason::GuestNotRunning, "the guest has ended"),
        (false, _) => ConditionValue::fails(Reason::PodNotExists, "there is no pod"),
        (true, _) if is_terminating => {
            ConditionValue::fails(Reason::PodTerminating, "the pod is being deleted")
        }
        (true, _) if *phase != Phase::Running => {
            ConditionValue::fails(Reason::GuestNotRunning, "the guest is not running")
        }
        (true, Some(condition)) => copied(condition),
        (true, None) => {
            ConditionValue::fails(Reason::PodConditionMissing, "the pod says nothing yet")
        }
    };
    conditions::set(all, Type::Ready, &says, now);
}

/// Before the handover, what stands in the way is this controller's to tell.
fn is_ours(phase: &Phase) -> bool {
    matches!(
        phase,
        Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::WaitingForSync
    )
}

/// Why a container does not start, if it is more than a matter of time.
fn waiting(pod: &LauncherPod) -> Option<(&str, &str)> {
    let mut all = pod.init_containers.iter().chain(&pod.containers);
    all.find_map(|container: &Container| match &container.state {
        ContainerState::Waiting { reason, message } if !NORMAL_WAITS.contains(&reason.as_str()) => {
            Some((reason.as_str(), message.as_str()))
        }
        _ => None,
    })
}

fn copied(condition: &PodSays) -> ConditionValue<'_> {
    ConditionValue {
        status: &condition.status,
        reason: condition.reason.as_deref().unwrap_or_default(),
        message: condition.message.as_deref().unwrap_or_default(),
    }
}
