//! The controller's part of the status of a VMI, complete in every write.

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
use reconcile::{Fragment, Key};
use serde_json::json;

use super::observe::{Arrival, Observed};
use super::plan::{DataVolumes, Plan, PodState, Problem, is_ready, pod_state};
use super::pod::{Container, ContainerState, LauncherPod, PodCondition};
use crate::MANAGER;
use crate::view::{Guest, GuestStatus};

const POD_SCHEDULED: &str = "PodScheduled";
const READY: &str = "Ready";
const SURPLUS: &str =
    "the guest has more processors than its spec, and keeps them until it is restarted";
/// Reasons of waiting containers that make progress.
const NORMAL_WAITS: [&str; 3] = ["ContainerCreating", "PodInitializing", ""];

/// The results of the steps.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// The pod that was created or is known to exist.
    pub(super) pod: Option<PodFacts>,
    /// Why the pod could not be created.
    pub(super) failure: Option<String>,
    /// This VMI cannot get a pod, but a replacement can.
    pub(super) is_abandoned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodFacts {
    pub(super) image: String,
    /// In bytes.
    pub(super) overhead: u64,
}

/// The desired status, from the observed state, the plan and the results of its steps.
pub(super) fn render(observed: &Observed, plan: &Plan, done: &Done) -> GuestStatus {
    let mut status = observed.vmi.status.clone();
    let now = Time(observed.now);
    let phase = if done.pod.is_some() {
        &Phase::Scheduling
    } else if done.is_abandoned {
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
    if done.is_abandoned {
        status.reason = Some(Reason::PodNameTaken.into());
    } else if let Some(reason) = plan.reason {
        status.reason = Some(reason.into());
    }
    if let Some(facts) = &done.pod {
        status.launcher_image = Some(facts.image.clone());
        status.memory_overhead = Some(Amount::of(facts.overhead).to_binary());
        status.migration_transport = Some(VirtualMachineInstanceMigrationTransport::Unix);
        status.runtime_user = u64::try_from(launcher_pod::RUNTIME_USER).ok();
    }
    status.tsc_frequency = status.tsc_frequency.or(observed.tsc_frequency);
    if *phase == Phase::Scheduling {
        status.vsock = status.vsock.or(observed.vsock);
    }
    if *phase == Phase::Scheduled
        && status.node_name.is_none()
        && let Some(pod) = &observed.pod
    {
        hand_over(&mut status, pod);
    }
    if plan.follows_guest
        && let Arrival::In(pod) = &observed.arrival
    {
        status.active_pods.clear();
        hand_over(&mut status, pod);
    }
    // The controller of migrations removes the old pod from the active ones.
    if observed.has_moved_within_node
        && *phase == Phase::Running
        && let Some(pod) = &observed.pod
    {
        note_pod(&mut status, pod);
    }
    status.is_outdated = status.runs_in_other_than(&observed.launcher_image);
    status.conditions = render_conditions(observed, plan, done, &status);
    status
}

/// The part that this controller owns, or `None` if nothing changed.
pub(super) fn fragment<'a>(
    vmi: &Guest,
    key: &'a Key,
    status: &GuestStatus,
) -> Option<Fragment<'a>> {
    if vmi.status == *status {
        return None;
    }
    let phase = Some(&status.phase).filter(|phase| **phase != Phase::Unset);
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachineInstance::KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": vmi.metadata.resource_version,
            "labels": {
                labels::NODE_NAME: status.node_name,
                labels::OUTDATED_LAUNCHER_IMAGE: status.is_outdated.then_some(""),
            },
        },
        "status": {
            "conditions": status.conditions,
            "phaseTransitionTimestamps": status.changes,
            "phase": phase,
            "reason": status.reason,
            "nodeName": status.node_name,
            "activePods": status.active_pods,
            "qosClass": status.qos_class,
            "runtimeUser": status.runtime_user,
            "launcherContainerImageVersion": status.launcher_image,
            "migrationTransport": status.migration_transport,
            "VSOCKCID": status.vsock,
            "topologyHints": {"tscFrequency": status.tsc_frequency},
            "memory": {"memoryOverhead": status.memory_overhead},
        },
    });
    Some(Fragment::new(MANAGER, key, body))
}

/// From here on virt-handler of that node owns the phase.
fn hand_over(status: &mut GuestStatus, pod: &LauncherPod) {
    let node = pod.node_name.clone().unwrap_or_default();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    status.active_pods.insert(uid, node.clone());
    status.node_name = Some(node);
    note_pod(status, pod);
}

/// What the status says of the pod that has the guest. virt-controller may have ended after it created the pod, and
/// before it noted the image.
fn note_pod(status: &mut GuestStatus, pod: &LauncherPod) {
    status.qos_class.clone_from(&pod.qos_class);
    if pod.image.is_some() {
        status.launcher_image.clone_from(&pod.image);
    }
}

fn render_conditions(
    observed: &Observed,
    plan: &Plan,
    done: &Done,
    status: &GuestStatus,
) -> Vec<VirtualMachineInstanceCondition> {
    let now = &Time(observed.now);
    let mut all = status.conditions.clone();
    let pod = observed.pod.as_deref();
    set_ready(&mut all, observed, done, status, now);
    match &plan.data_volumes {
        Some(DataVolumes::Ready) => {
            let value = ConditionValue {
                status: conditions::TRUE,
                reason: Reason::AllDVsReady.as_str(),
                message: "",
            };
            conditions::set(&mut all, Type::DataVolumesReady, &value, now);
        }
        Some(DataVolumes::NotReady(message)) => {
            let value = ConditionValue::fails(Reason::NotAllDVsReady, message);
            conditions::set(&mut all, Type::DataVolumesReady, &value, now);
        }
        None => {}
    }
    if plan.is_binding {
        conditions::set(&mut all, Type::Provisioning, &ConditionValue::holds(), now);
    } else {
        conditions::remove(&mut all, &Type::Provisioning);
    }
    set_growth(&mut all, &observed.vmi, &status.phase, now);
    let pod = pod.or(observed.binder.as_deref());
    if !is_ours(&status.phase) && plan.problem.is_none() && !done.is_abandoned {
        return all;
    }
    let failed = done
        .failure
        .as_deref()
        .map(|message| (Reason::FailedCreate.as_str(), message));
    let problem = plan.problem.as_ref();
    let planned = problem.map(|problem| (problem.reason.as_str(), problem.message.as_str()));
    match planned.or(failed).or_else(|| pod.and_then(waiting)) {
        Some((reason, message)) => {
            let advised = reasons::advise(reason, message);
            let value = ConditionValue::fails(reason, &advised);
            conditions::set(&mut all, Type::Synchronized, &value, now);
        }
        // A problem of virt-handler is removed by virt-handler.
        None if !is_handler_problem(&status.conditions) => {
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
        let value = ConditionValue::fails(Reason::Unschedulable, message);
        conditions::set(&mut all, scheduled, &value, now);
        return all;
    }
    match pod.and_then(|pod| pod.condition(POD_SCHEDULED)) {
        Some(condition) if condition.status == conditions::FALSE => {
            let value = copied(condition);
            conditions::set(&mut all, scheduled, &value, now);
        }
        _ => conditions::remove(&mut all, &scheduled),
    }
    all
}

/// A running guest gets the processors and the memory of a changed spec in another pod, made for that size.
/// virt-handler ends the conditions, or says why the guest does not get them.
fn set_growth(
    all: &mut Vec<VirtualMachineInstanceCondition>,
    vmi: &Guest,
    phase: &Phase,
    now: &Time,
) {
    if vmi.growth.has_surplus_processors && *phase == Phase::Running {
        // The change was taken back after the guest had got them.
        let reason = Reason::GuestResizeFailed;
        let message = reason.advise(SURPLUS);
        let value = ConditionValue::fails(reason, &message);
        conditions::set(all, Type::HotVCPUChange, &value, now);
        return set_lack(all, Type::HotMemoryChange, vmi.growth.lacks_memory, now);
    }
    for (kind, lacks) in [
        (Type::HotVCPUChange, vmi.growth.lacks_processors),
        (Type::HotMemoryChange, vmi.growth.lacks_memory),
    ] {
        set_lack(all, kind, lacks && *phase == Phase::Running, now);
    }
}

fn set_lack(all: &mut Vec<VirtualMachineInstanceCondition>, kind: Type, lacks: bool, now: &Time) {
    if !lacks {
        conditions::remove(all, &kind);
    } else if conditions::find(all, &kind).is_none() {
        conditions::set(all, kind, &ConditionValue::holds(), now);
    }
}

/// Reasons of problems that this controller reports. It also copies the reasons of waiting
/// containers; all other reasons come from virt-handler.
const OWN_REASONS: [Reason; 10] = [
    Reason::FailedCreate,
    Reason::VolumeBindingFailed,
    Reason::FeatureNotSupported,
    Reason::FailedPvcNotFound,
    Reason::ClaimAwaitsUpload,
    Reason::ClaimBeingRestored,
    Reason::FailedDataVolumeImport,
    Reason::FailedGuaranteeResources,
    Reason::ContainerDiskMissing,
    Reason::ContainerDiskNotCopied,
];

fn is_handler_problem(before: &[VirtualMachineInstanceCondition]) -> bool {
    let condition = conditions::find(before, &Type::Synchronized);
    let reason = condition.map(|condition| condition.reason.as_deref().unwrap_or_default());
    let is_ours = |reason: &str| {
        let known = reason.parse::<Reason>();
        known.is_ok_and(|known| {
            OWN_REASONS.contains(&known) || Reason::CONTAINER_WAITS.contains(&known)
        })
    };
    reason.is_some_and(|reason| !is_ours(reason))
}

/// Sets the condition Ready. Once the guest runs, virt-handler owns it, which alone knows whether the
/// guest is paused; two disagreeing writers would fight forever. But virt-handler of an unreachable
/// node cannot report, so this controller reports that a pod is no longer ready. A reachable
/// virt-handler reports the same, and only virt-handler sets the condition to True again.
fn set_ready(
    all: &mut Vec<VirtualMachineInstanceCondition>,
    observed: &Observed,
    done: &Done,
    status: &GuestStatus,
    now: &Time,
) {
    let phase = &status.phase;
    let is_set = conditions::find(all, &Type::Ready).is_some();
    let is_final = matches!(phase, Phase::Succeeded | Phase::Failed);
    let is_owned_by_handler =
        *phase == Phase::Running || (is_final && phase == observed.vmi.phase());
    let pod = observed.pod.as_deref();
    if is_owned_by_handler && is_set {
        let unready = pod.filter(|pod| is_ready(pod)).and_then(unready);
        if let Some(unready) = unready
            && *phase == Phase::Running
            && conditions::is_true(all, &Type::Ready)
        {
            let message = &reasons::advise(unready.reason, unready.message);
            let value = ConditionValue { message, ..unready };
            conditions::set(all, Type::Ready, &value, now);
        }
        return;
    }
    let has_pod = pod.is_some() || done.pod.is_some();
    let is_terminating = pod_state(pod) == PodState::Terminating;
    let ready = pod.and_then(|pod| pod.condition(READY));
    let ending = status.reason.as_deref().unwrap_or_default();
    let ended = reasons::advise(ending, "the guest has ended");
    let value = match (has_pod, ready) {
        _ if is_final => ConditionValue::fails(Reason::GuestNotRunning, &ended),
        (false, _) => ConditionValue::fails(Reason::PodNotExists, "there is no pod"),
        (true, _) if is_terminating => {
            ConditionValue::fails(Reason::PodTerminating, conditions::POD_TERMINATING)
        }
        (true, _) if *phase != Phase::Running => {
            ConditionValue::fails(Reason::GuestNotRunning, "the guest is not running")
        }
        (true, Some(condition)) => copied(condition),
        (true, None) => ConditionValue::fails(
            Reason::PodConditionMissing,
            "the pod has no such condition yet",
        ),
    };
    conditions::set(all, Type::Ready, &value, now);
}

/// Why a running pod is not ready, if it is not.
fn unready(pod: &LauncherPod) -> Option<ConditionValue<'_>> {
    if pod.metadata.deletion_timestamp.is_some() {
        let message = conditions::POD_TERMINATING;
        return Some(ConditionValue::fails(Reason::PodTerminating, message));
    }
    let ready = pod.condition(READY)?;
    let (reason, message) = (ready.reason.as_deref(), ready.message.as_deref());
    (ready.status == conditions::FALSE).then(|| ConditionValue::like_its_pod(reason, message))
}

/// Before the handover this controller reports problems.
fn is_ours(phase: &Phase) -> bool {
    matches!(
        phase,
        Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::WaitingForSync
    )
}

/// Why a container does not start, unless it makes progress.
fn waiting(pod: &LauncherPod) -> Option<(&str, &str)> {
    let mut all = pod.init_containers.iter().chain(&pod.containers);
    all.find_map(|container: &Container| match &container.state {
        ContainerState::Waiting { reason, message } if !NORMAL_WAITS.contains(&reason.as_str()) => {
            Some((reason.as_str(), message.as_str()))
        }
        _ => None,
    })
}

fn copied(condition: &PodCondition) -> ConditionValue<'_> {
    ConditionValue {
        status: &condition.status,
        reason: condition.reason.as_deref().unwrap_or_default(),
        message: condition.message.as_deref().unwrap_or_default(),
    }
}
