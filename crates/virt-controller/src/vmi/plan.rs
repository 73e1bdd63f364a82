//! What a pass does, decided from what it saw.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use kubevirt_api::{annotations, finalizers};
use launcher_pod::CONTAINER;
use reasons::Reason;

use super::observe::Observed;
use super::volumes::{self, Verdict};
use crate::view::{ContainerState, Guest, LauncherPod};

/// As a kubelet calls a pod that has all it asks for to itself.
const GUARANTEED: &str = "Guaranteed";

/// How long a handler may take to record the end of a guest whose pod is over.
const HANDLER_GRACE: SignedDuration = SignedDuration::from_secs(5);
/// How long a launcher may take to end after its guest's end was recorded.
const RELEASE_GRACE: SignedDuration = SignedDuration::from_secs(15);
/// How long past the guest's own grace a handler may take to end it.
const SHUTDOWN_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// While no node has said what it can do.
const NODE_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    CreatePod,
    /// One that does nothing but have claims bound.
    CreateBinder,
    /// The VMI's pod.
    DeletePod,
    /// Pods of this VMI that have no place.
    DeleteOthers,
    RemoveFinalizer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The phase to be; creating a pod moves on to Scheduling besides.
    pub(super) phase: Phase,
    /// Why the phase is to be Failed, in a word for the status.
    pub(super) reason: Option<Reason>,
    /// What keeps the VMI where it is.
    pub(super) problem: Option<Problem>,
    /// What is known of its data volumes, if it has any.
    pub(super) data_volumes: Option<DataVolumes>,
    /// A pod is there, or to come, for no other reason than to have claims bound.
    pub(super) is_binding: bool,
    pub(super) look_again_in: Option<Duration>,
}

/// For the conditions of a VMI that does not get on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// No node is right for it, which is what tables of VMs show.
    pub(super) is_unschedulable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataVolumes {
    Ready,
    NotReady(String),
}

/// What the pod has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodState {
    Missing,
    /// On its way, or up but not ready.
    Starting,
    /// All containers ready, on a known node.
    Ready,
    /// Being deleted.
    Terminating,
    Succeeded,
    Failed,
}

pub(super) fn plan(seen: &Observed) -> Plan {
    let now_phase = seen.vmi.phase().clone();
    let mut plan = Plan {
        steps: Vec::new(),
        phase: now_phase.clone(),
        reason: None,
        problem: None,
        data_volumes: None,
        is_binding: false,
        look_again_in: None,
    };
    if !seen.others.is_empty() {
        plan.steps.push(Step::DeleteOthers);
    }
    match now_phase {
        Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::WaitingForSync
            if seen.vmi.is_deleting() =>
        {
            plan_never_started(seen, &mut plan);
        }
        Phase::Unset | Phase::Pending => plan_pending(seen, &mut plan),
        Phase::Scheduling => match pod_state(seen.pod.as_deref()) {
            PodState::Ready => plan_hand_over(seen, &mut plan),
            PodState::Starting => {}
            PodState::Missing | PodState::Terminating | PodState::Succeeded | PodState::Failed => {
                plan.phase = Phase::Failed;
                plan.problem = seen.pod.as_deref().and_then(not_copied);
            }
        },
        Phase::Scheduled | Phase::Running => plan_started(seen, &mut plan),
        Phase::Succeeded | Phase::Failed => plan_final(seen, &mut plan),
        // A guest that migrates here brings its pod.
        Phase::WaitingForSync if seen.pod.is_some() => plan.phase = Phase::Scheduling,
        // And those of versions to come.
        Phase::WaitingForSync | Phase::Unknown | Phase::Other(_) => {}
    }
    plan
}

fn plan_pending(seen: &Observed, plan: &mut Plan) {
    if pod_state(seen.pod.as_deref()) != PodState::Missing {
        // Made in a pass that was cut off before it wrote the phase.
        plan.phase = Phase::Scheduling;
        return;
    }
    if seen.vmi.annotation(annotations::CREATE_MIGRATION_TARGET) == Some("true") {
        plan.phase = Phase::WaitingForSync;
        return;
    }
    plan.phase = Phase::Pending;
    plan.problem = unsupported(seen);
    if plan.problem.is_some() {
        // The spec does not change, so nothing needs to be looked at again.
        return;
    }
    let verdict = volumes::judge(&seen.backings);
    if seen.vmi.has_data_volumes {
        plan.data_volumes = Some(match &verdict {
            Verdict::Ready => DataVolumes::Ready,
            Verdict::Missing(message)
            | Verdict::Filling(message)
            | Verdict::FirstConsumer(message)
            | Verdict::Failed(message) => DataVolumes::NotReady(message.clone()),
        });
    }
    match verdict {
        Verdict::Ready | Verdict::FirstConsumer(_) if seen.acceleration.is_none() => {
            plan.look_again_in = Some(NODE_WAIT);
        }
        Verdict::Ready => plan.steps.push(Step::CreatePod),
        Verdict::FirstConsumer(_) | Verdict::Filling(_)
            if pod_state(seen.binder.as_deref()) == PodState::Failed =>
        {
            plan.phase = Phase::Failed;
            plan.problem = Some(Problem {
                reason: Reason::FailedCreate,
                message: "the pod that was to have the claims bound has failed".to_owned(),
                is_unschedulable: false,
            });
        }
        Verdict::FirstConsumer(_) => {
            plan.is_binding = true;
            // Over or not: it has done its part, and the importer is next.
            if seen.binder.is_none() {
                plan.steps.push(Step::CreateBinder);
            }
        }
        Verdict::Filling(_) => plan.is_binding = seen.binder.is_some(),
        Verdict::Missing(message) => {
            plan.problem = Some(Problem {
                reason: Reason::FailedPvcNotFound,
                message,
                is_unschedulable: true,
            });
        }
        Verdict::Failed(message) => {
            plan.phase = Phase::Failed;
            plan.problem = Some(Problem {
                reason: Reason::FailedDataVolumeImport,
                message,
                is_unschedulable: false,
            });
        }
    }
}

/// The VMI's fields that this version cannot run.
fn unsupported(seen: &Observed) -> Option<Problem> {
    let fields = model::unsupported::in_spec(&seen.vmi.whole()?.spec, "spec");
    Some(Problem {
        reason: Reason::FeatureNotSupported,
        message: model::unsupported::summary(&fields)?,
        is_unschedulable: true,
    })
}

/// The pod is up: the node's handler is next, unless the pod is not what was asked for.
fn plan_hand_over(seen: &Observed, plan: &mut Plan) {
    let class = seen.pod.as_deref().and_then(|pod| pod.qos_class.as_deref());
    if seen.vmi.needs_guarantee && class != Some(GUARANTEED) {
        let class = class.unwrap_or("unknown");
        plan.problem = Some(Problem {
            reason: Reason::FailedGuaranteeResources,
            message: format!("CPUs of its own need a pod of class {GUARANTEED}, it is {class}"),
            is_unschedulable: false,
        });
    } else {
        plan.phase = Phase::Scheduled;
    }
}

/// What kept a disk from being copied out of its image, if that is why the pod has failed.
fn not_copied(pod: &LauncherPod) -> Option<Problem> {
    let mut copiers = pod.init_containers.iter();
    let (name, failure) = copiers.find_map(|container| match &container.state {
        ContainerState::Terminated {
            failure: Some(failure),
            ..
        } => Some((&container.name, failure)),
        _ => None,
    })?;
    let reason = if failure.exit_code == i32::from(container_disk::IMAGE_AT_FAULT) {
        Reason::ContainerDiskMissing
    } else {
        Reason::ContainerDiskNotCopied
    };
    let words = match (failure.message.trim(), failure.reason.as_str()) {
        ("", why) => format!("the copier ended with code {} ({why})", failure.exit_code),
        (words, _) => words.to_owned(),
    };
    let of_volume = name
        .strip_prefix("volume")
        .and_then(|name| name.strip_suffix("-init"));
    let message = match of_volume {
        Some(volume) => format!("volume {volume}: {words}"),
        None => format!("container {name}: {words}"),
    };
    Some(Problem {
        reason,
        message,
        is_unschedulable: false,
    })
}

/// Being deleted before the handler was in charge: the pod goes first, then the VMI.
fn plan_never_started(seen: &Observed, plan: &mut Plan) {
    match pod_state(seen.pod.as_deref()) {
        PodState::Missing => plan.phase = Phase::Failed,
        PodState::Terminating => {}
        _ => plan.steps.push(Step::DeletePod),
    }
}

fn plan_started(seen: &Observed, plan: &mut Plan) {
    let pod = seen.pod.as_deref();
    match pod_state(pod) {
        PodState::Missing | PodState::Terminating if seen.is_node_lost => {
            plan.phase = Phase::Failed;
            plan.reason = Some(Reason::NodeUnresponsive);
        }
        PodState::Missing => plan.phase = Phase::Failed,
        state @ (PodState::Succeeded | PodState::Failed) => {
            // The handler knows best how the guest ended, but it may be gone.
            // Where no container says when it ended, none will.
            let ended = pod.and_then(finished_at).unwrap_or(Timestamp::UNIX_EPOCH);
            match wait_until(seen.now, ended, HANDLER_GRACE) {
                Some(wait) => plan.look_again_in = Some(wait),
                None if state == PodState::Succeeded => plan.phase = Phase::Succeeded,
                None => {
                    plan.phase = Phase::Failed;
                    // What a cluster says of a pod whose node was deleted, before it deletes the pod.
                    plan.reason = seen.is_node_lost.then_some(Reason::NodeUnresponsive);
                }
            }
        }
        PodState::Terminating => {}
        PodState::Starting | PodState::Ready => {
            // The handler shuts the guest down. If it does not, the pod's own end does.
            if let Some(asked) = &seen.vmi.metadata.deletion_timestamp {
                let grace = seen.vmi.grace_seconds.unwrap_or(30).max(0);
                let grace = SignedDuration::from_secs(grace).saturating_add(SHUTDOWN_GRACE);
                match wait_until(seen.now, asked.0, grace) {
                    Some(wait) => plan.look_again_in = Some(wait),
                    None => plan.steps.push(Step::DeletePod),
                }
            }
        }
    }
}

fn plan_final(seen: &Observed, plan: &mut Plan) {
    let is_deleting = seen.vmi.is_deleting();
    match (pod_state(seen.pod.as_deref()), is_deleting) {
        (PodState::Missing, true) => {
            if has_finalizer(&seen.vmi) && seen.others.is_empty() {
                plan.steps.push(Step::RemoveFinalizer);
            }
        }
        // A pod that is over stays for its logs.
        (PodState::Terminating | PodState::Missing, _)
        | (PodState::Succeeded | PodState::Failed, false) => {}
        (_, true) => plan.steps.push(Step::DeletePod),
        (PodState::Starting | PodState::Ready, false) => {
            let since = final_since(&seen.vmi).unwrap_or(seen.now);
            match wait_until(seen.now, since, RELEASE_GRACE) {
                Some(wait) => plan.look_again_in = Some(wait),
                None => plan.steps.push(Step::DeletePod),
            }
        }
    }
}

pub(super) fn pod_state(pod: Option<&LauncherPod>) -> PodState {
    let Some(pod) = pod else {
        return PodState::Missing;
    };
    match pod.phase.as_deref() {
        Some("Succeeded") => PodState::Succeeded,
        Some("Failed") => PodState::Failed,
        _ if pod.metadata.deletion_timestamp.is_some() => PodState::Terminating,
        Some("Running") if is_ready(pod) && pod.node_name.is_some() => PodState::Ready,
        _ => PodState::Starting,
    }
}

/// Whether every container is up. A readiness probe speaks of the guest, which is not started
/// yet, so it must not hold up the start.
pub(super) fn is_ready(pod: &LauncherPod) -> bool {
    let mut containers = pod.containers.iter();
    !pod.containers.is_empty()
        && containers.all(|container| matches!(container.state, ContainerState::Running))
}

fn finished_at(pod: &LauncherPod) -> Option<Timestamp> {
    let mut containers = pod.containers.iter();
    match containers
        .find(|container| container.name == CONTAINER)?
        .state
    {
        ContainerState::Terminated { at, .. } => at,
        _ => None,
    }
}

fn final_since(vmi: &Guest) -> Option<Timestamp> {
    let last = vmi.status.changes.last()?;
    Some(last.phase_transition_timestamp.as_ref()?.0)
}

pub(super) fn has_finalizer(vmi: &Guest) -> bool {
    let list = vmi.metadata.finalizers.as_deref().unwrap_or_default();
    list.iter().any(|name| is_ours(name))
}

pub(super) fn is_ours(finalizer: &str) -> bool {
    finalizer == finalizers::VMI || finalizer == finalizers::VMI_OLD
}

/// What is left of the grace, if anything.
fn wait_until(now: Timestamp, since: Timestamp, grace: SignedDuration) -> Option<Duration> {
    let left = grace.saturating_sub(now.duration_since(since));
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}
