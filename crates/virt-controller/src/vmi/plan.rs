//! What a pass does, decided from what it saw.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use kubevirt_api::{VirtualMachineInstance, finalizers};
use launcher_pod::CONTAINER;

use super::observe::{Observed, phase};
use crate::view::LauncherPod;

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
    /// What the VMI asks for and this version cannot run: no pod is made for it.
    pub(super) unsupported: Option<String>,
    pub(super) look_again_in: Option<Duration>,
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
    let now_phase = phase(&seen.vmi);
    let mut plan = Plan {
        steps: Vec::new(),
        phase: now_phase.clone(),
        unsupported: None,
        look_again_in: None,
    };
    if !seen.others.is_empty() {
        plan.steps.push(Step::DeleteOthers);
    }
    let is_deleting = seen.vmi.metadata.deletion_timestamp.is_some();
    match now_phase {
        Phase::Unset | Phase::Pending | Phase::Scheduling if is_deleting => {
            plan_never_started(seen, &mut plan);
        }
        Phase::Unset | Phase::Pending => plan_pending(seen, &mut plan),
        Phase::Scheduling => match pod_state(seen.pod.as_deref()) {
            PodState::Ready => plan.phase = Phase::Scheduled,
            PodState::Starting => {}
            PodState::Missing | PodState::Terminating | PodState::Succeeded | PodState::Failed => {
                plan.phase = Phase::Failed;
            }
        },
        Phase::Scheduled | Phase::Running => plan_started(seen, &mut plan),
        Phase::Succeeded | Phase::Failed => plan_final(seen, &mut plan),
        // Phases of migrations between clusters, and those of versions to come.
        Phase::WaitingForSync | Phase::Unknown | Phase::Other(_) => {}
    }
    plan
}

fn plan_pending(seen: &Observed, plan: &mut Plan) {
    match pod_state(seen.pod.as_deref()) {
        PodState::Missing if cannot_run(seen, plan) => plan.phase = Phase::Pending,
        PodState::Missing if seen.acceleration.is_none() => {
            plan.look_again_in = Some(NODE_WAIT);
        }
        PodState::Missing => plan.steps.push(Step::CreatePod),
        // Made in a pass that was cut off before it wrote the phase.
        _ => plan.phase = Phase::Scheduling,
    }
}

/// Notes what the VMI asks for in vain, if anything. Its spec does not change, so nothing needs to
/// be looked at again.
fn cannot_run(seen: &Observed, plan: &mut Plan) -> bool {
    let missing = admission::unsupported::in_vmi(&seen.vmi.spec, "spec");
    plan.unsupported = admission::unsupported::summary(&missing);
    plan.unsupported.is_some()
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
        PodState::Missing => plan.phase = Phase::Failed,
        state @ (PodState::Succeeded | PodState::Failed) => {
            // The handler knows best how the guest ended, but it may be gone.
            // Where no container says when it ended, none will.
            let ended = pod.and_then(finished_at).unwrap_or(Timestamp::UNIX_EPOCH);
            match wait_until(seen.now, ended, HANDLER_GRACE) {
                Some(wait) => plan.look_again_in = Some(wait),
                None if state == PodState::Succeeded => plan.phase = Phase::Succeeded,
                None => plan.phase = Phase::Failed,
            }
        }
        PodState::Terminating => {}
        PodState::Starting | PodState::Ready => {
            // The handler shuts the guest down. If it does not, the pod's own end does.
            if let Some(asked) = &seen.vmi.metadata.deletion_timestamp {
                let grace = seen
                    .vmi
                    .spec
                    .termination_grace_period_seconds
                    .unwrap_or(30)
                    .max(0);
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
    let is_deleting = seen.vmi.metadata.deletion_timestamp.is_some();
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
    let status = &pod.status;
    match status.phase.as_deref() {
        Some("Succeeded") => PodState::Succeeded,
        Some("Failed") => PodState::Failed,
        _ if pod.metadata.deletion_timestamp.is_some() => PodState::Terminating,
        Some("Running") if is_ready(pod) && pod.spec.node_name.is_some() => PodState::Ready,
        _ => PodState::Starting,
    }
}

/// Whether every container is up. A readiness probe speaks of the guest, which is not started
/// yet, so it must not hold up the start.
fn is_ready(pod: &LauncherPod) -> bool {
    let containers = pod.status.container_statuses.as_deref().unwrap_or_default();
    !containers.is_empty()
        && containers.iter().all(|container| {
            let state = container.state.as_ref();
            state.is_some_and(|state| state.running.is_some())
        })
}

fn finished_at(pod: &LauncherPod) -> Option<Timestamp> {
    let containers = pod.status.container_statuses.as_deref()?;
    let compute = containers
        .iter()
        .find(|container| container.name == CONTAINER)?;
    let terminated = compute.state.as_ref()?.terminated.as_ref()?;
    Some(terminated.finished_at.as_ref()?.0)
}

fn final_since(vmi: &VirtualMachineInstance) -> Option<Timestamp> {
    let changes = &vmi.status.as_ref()?.phase_transition_timestamps;
    Some(changes.last()?.phase_transition_timestamp.as_ref()?.0)
}

pub(super) fn has_finalizer(vmi: &VirtualMachineInstance) -> bool {
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
