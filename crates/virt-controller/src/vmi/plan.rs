//! Pure planning: maps the observed state to the steps of one reconcile.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use kubevirt_api::{annotations, finalizers};
use launcher_pod::CONTAINER;
use model::MigrationEnd;
use reasons::Reason;

use super::nics;
use super::observe::{Arrival, Observed};
use super::pod::{ContainerState, LauncherPod};
use super::state_claim::StateClaim;
use super::volumes::{self, Readiness};
use crate::view::Guest;

/// The class of a pod whose requests equal its limits: its containers can have CPUs of their own.
pub(crate) const GUARANTEED: &str = "Guaranteed";

/// How long virt-handler may take to record the end of a guest whose pod has ended.
const HANDLER_GRACE: SignedDuration = SignedDuration::from_secs(5);
/// How long the new node of a guest may take to report it, once the pod is gone that it was leaving.
const ARRIVAL_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// How long a launcher may take to end after its guest's end was recorded.
const RELEASE_GRACE: SignedDuration = SignedDuration::from_secs(15);
/// How long after the guest's own grace period virt-handler may take to stop it.
const SHUTDOWN_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// How long a standalone VMI in phase Succeeded stays after its deletion. The time of the phase is in
/// whole seconds, so it is shown for two seconds at least.
const SHOWN: SignedDuration = SignedDuration::from_secs(3);
/// How far ahead the clock of another machine may be before its times count as past.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);
/// Requeue time while no node has reported its capabilities.
const NODE_WAIT: Duration = Duration::from_secs(2);
/// Until the other end of a migration is looked at again, which has to learn where the guest is.
const OTHER_END_WAIT: Duration = Duration::from_secs(2);
/// Until missing network definitions are looked up again: they are not watched, as the kind may not exist.
const DEFINITION_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The claim on which the guest keeps its own state.
    CreateStateClaim,
    CreatePod,
    /// A pod whose only purpose is to have claims bound.
    CreateBinder,
    /// The VMI's pod.
    DeletePod,
    /// Other pods of this VMI.
    DeleteOthers,
    /// On the pod: networks that come and go with interfaces of the guest.
    ChangeNetworks,
    /// On the VMI: interfaces that guest and pod have lost leave it.
    DropInterfaces,
    /// The guest has moved to new claims: the spec gets them.
    SettleVolumes,
    RemoveFinalizer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The desired phase; creating a pod changes it to Scheduling.
    pub(super) phase: Phase,
    /// The reason of the phase Failed, for the status.
    pub(super) reason: Option<Reason>,
    /// The problem that blocks the VMI.
    pub(super) problem: Option<Problem>,
    /// The state of its data volumes, if it has any.
    pub(super) data_volumes: Option<DataVolumes>,
    /// A pod whose only purpose is to have claims bound exists or will be created.
    pub(super) is_binding: bool,
    /// The guest has moved to another pod: the VMI follows it to its node.
    pub(super) follows_guest: bool,
    pub(super) requeue_in: Option<Duration>,
}

/// Why a VMI is blocked, for its conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// No node can run it; the printable status of the VM shows that.
    pub(super) is_unschedulable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataVolumes {
    Ready,
    NotReady(String),
}

/// The state of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodState {
    Missing,
    /// Not created or not ready yet.
    Starting,
    /// All containers ready, on a known node.
    Ready,
    /// Being deleted.
    Terminating,
    Succeeded,
    Failed,
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let now_phase = observed.vmi.phase().clone();
    let mut plan = Plan {
        steps: Vec::new(),
        phase: now_phase.clone(),
        reason: None,
        problem: None,
        data_volumes: None,
        is_binding: false,
        follows_guest: false,
        requeue_in: None,
    };
    if observed.vmi.volumes_arrived() {
        // Before anything else, also of a guest that has ended since: its VM must not start on the former claims.
        plan.steps.push(Step::SettleVolumes);
        return plan;
    }
    if !observed.others.is_empty() {
        plan.steps.push(Step::DeleteOthers);
    }
    let named = observed.vmi.identity();
    let awaits_guest = model::awaits_guest(&named);
    match now_phase {
        Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::WaitingForSync
            if observed.vmi.is_deleting() =>
        {
            plan_never_started(observed, &mut plan);
        }
        Phase::Scheduling | Phase::Scheduled if awaits_guest && has_withdrawn(&observed.vmi) => {
            plan_never_started(observed, &mut plan);
        }
        Phase::Scheduled if awaits_guest => plan_waiting(observed, &mut plan),
        Phase::Unset | Phase::Pending => plan_pending(observed, &mut plan),
        Phase::Scheduling => match pod_state(observed.pod.as_deref()) {
            PodState::Ready => plan_hand_over(observed, &mut plan),
            PodState::Starting => {}
            PodState::Missing | PodState::Terminating | PodState::Succeeded | PodState::Failed => {
                plan.phase = Phase::Failed;
                plan.problem = observed.pod.as_deref().and_then(not_copied);
            }
        },
        Phase::Scheduled | Phase::Running => plan_started(observed, &mut plan),
        Phase::Succeeded | Phase::Failed => plan_final(observed, &mut plan),
        Phase::WaitingForSync if observed.pod.is_some() => plan.phase = Phase::Scheduling,
        Phase::WaitingForSync if is_expected(observed) => plan_pending(observed, &mut plan),
        // It waits; or a phase of a future version.
        Phase::WaitingForSync | Phase::Unknown | Phase::Other(_) => {}
    }
    plan
}

fn plan_pending(observed: &Observed, plan: &mut Plan) {
    if pod_state(observed.pod.as_deref()) != PodState::Missing {
        // Created by a reconcile that was interrupted before it wrote the phase.
        plan.phase = Phase::Scheduling;
        return;
    }
    let mark = observed
        .vmi
        .annotation(annotations::CREATE_MIGRATION_TARGET);
    if mark == Some("true") && !is_expected(observed) {
        plan.phase = Phase::WaitingForSync;
        return;
    }
    plan.phase = Phase::Pending;
    plan.problem = unsupported(observed);
    if plan.problem.is_some() {
        // The spec does not change, so there is nothing to wait for.
        return;
    }
    if let Some(message) = observed.networks.problem() {
        plan.problem = Some(Problem {
            reason: Reason::NetworkDefinitionMissing,
            message,
            is_unschedulable: true,
        });
        plan.requeue_in = Some(DEFINITION_WAIT);
        return;
    }
    if observed.tsc_frequency.is_some() {
        // The pod is rendered from the status, which gets the frequency now.
        return;
    }
    let readiness = volumes::readiness(&observed.backings);
    if observed.vmi.has_data_volumes {
        plan.data_volumes = Some(match &readiness {
            Readiness::Ready => DataVolumes::Ready,
            Readiness::Missing(message)
            | Readiness::Uploading(message)
            | Readiness::Restoring(message)
            | Readiness::Populating(message)
            | Readiness::FirstConsumer(message)
            | Readiness::Failed(message) => DataVolumes::NotReady(message.clone()),
        });
    }
    match readiness {
        Readiness::Ready | Readiness::FirstConsumer(_) if observed.acceleration.is_none() => {
            plan.requeue_in = Some(NODE_WAIT);
        }
        Readiness::Ready if observed.state_claim == StateClaim::Missing => {
            // Its creation is observed and leads to the next reconcile.
            plan.steps.push(Step::CreateStateClaim);
        }
        Readiness::Ready => plan.steps.push(Step::CreatePod),
        Readiness::FirstConsumer(_) | Readiness::Populating(_)
            if pod_state(observed.binder.as_deref()) == PodState::Failed =>
        {
            plan.phase = Phase::Failed;
            plan.problem = Some(Problem {
                reason: Reason::VolumeBindingFailed,
                message: "the pod that has the claims bound has failed".to_owned(),
                is_unschedulable: false,
            });
        }
        Readiness::FirstConsumer(_) => {
            plan.is_binding = true;
            // Even if it has ended: the claims are bound, and the importer is next.
            if observed.binder.is_none() {
                plan.steps.push(Step::CreateBinder);
            }
        }
        Readiness::Populating(_) => plan.is_binding = observed.binder.is_some(),
        Readiness::Uploading(message) => {
            plan.problem = Some(lacks_volume(Reason::ClaimAwaitsUpload, message));
        }
        Readiness::Restoring(message) => {
            plan.problem = Some(lacks_volume(Reason::ClaimBeingRestored, message));
        }
        Readiness::Missing(message) => {
            plan.problem = Some(lacks_volume(Reason::FailedPvcNotFound, message));
        }
        Readiness::Failed(message) => {
            plan.phase = Phase::Failed;
            plan.problem = Some(Problem {
                reason: Reason::FailedDataVolumeImport,
                message,
                is_unschedulable: false,
            });
        }
    }
}

/// No pod can be created until a volume is usable.
fn lacks_volume(reason: Reason, message: String) -> Problem {
    Problem {
        reason,
        message,
        is_unschedulable: true,
    }
}

/// Fields of the VMI that this version does not support.
fn unsupported(observed: &Observed) -> Option<Problem> {
    let fields = model::unsupported::in_vmi(observed.vmi.whole()?);
    Some(Problem {
        reason: Reason::FeatureNotSupported,
        message: model::unsupported::summary(&fields)?,
        is_unschedulable: true,
    })
}

/// The pod is ready: virt-handler takes over, unless the pod has the wrong class.
fn plan_hand_over(observed: &Observed, plan: &mut Plan) {
    let class = observed
        .pod
        .as_deref()
        .and_then(|pod| pod.qos_class.as_deref());
    if observed.vmi.needs_guarantee && class != Some(GUARANTEED) {
        let class = class.unwrap_or("unknown");
        plan.problem = Some(Problem {
            reason: Reason::FailedGuaranteeResources,
            message: format!(
                "dedicated CPUs need a pod of QoS class {GUARANTEED}, but it is {class}"
            ),
            is_unschedulable: false,
        });
    } else {
        plan.phase = Phase::Scheduled;
    }
}

/// The init container that installs the program for the copies.
const COPY_INSTALLER: &str = "container-disk-binary";

/// The volume whose image an init container copies.
fn copied_volume(container: &str) -> Option<&str> {
    container.strip_prefix("volume")?.strip_suffix("-init")
}

/// Why a disk was not copied out of its image, if the pod has failed because of that. Webhooks of others
/// add init containers, too.
fn not_copied(pod: &LauncherPod) -> Option<Problem> {
    let is_copier = |name: &str| name == COPY_INSTALLER || copied_volume(name).is_some();
    let mut copiers = pod
        .init_containers
        .iter()
        .filter(|container| is_copier(&container.name));
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
    let text = match (failure.message.trim(), failure.reason.as_str()) {
        ("", why) => format!("the copier ended with code {} ({why})", failure.exit_code),
        (text, _) => text.to_owned(),
    };
    let message = match copied_volume(name) {
        Some(volume) => format!("volume {volume}: {text}"),
        None => format!("container {name}: {text}"),
    };
    Some(Problem {
        reason,
        message,
        is_unschedulable: false,
    })
}

/// Deleted before the handover to virt-handler: the pod is deleted first, then the VMI.
fn plan_never_started(observed: &Observed, plan: &mut Plan) {
    match pod_state(observed.pod.as_deref()) {
        PodState::Missing => plan.phase = Phase::Failed,
        PodState::Terminating => {}
        _ => plan.steps.push(Step::DeletePod),
    }
}

/// Whether a guest of another VMI is to come, so that a pod is needed.
fn is_expected(observed: &Observed) -> bool {
    let is_target = model::migration_end(&observed.vmi.identity()) == Some(MigrationEnd::Target);
    is_target && !has_withdrawn(&observed.vmi)
}

/// Whether the guest that was to come stays where it is.
fn has_withdrawn(vmi: &Guest) -> bool {
    let state = vmi.status.migration.as_deref();
    state.is_some_and(|state| state.failed == Some(true))
}

/// The pod waits for a guest of another VMI: nothing is shut down in it.
fn plan_waiting(observed: &Observed, plan: &mut Plan) {
    match pod_state(observed.pod.as_deref()) {
        PodState::Missing | PodState::Succeeded | PodState::Failed => plan.phase = Phase::Failed,
        PodState::Starting | PodState::Ready if observed.vmi.is_deleting() => {
            plan.steps.push(Step::DeletePod);
        }
        PodState::Terminating | PodState::Starting | PodState::Ready => {}
    }
}

fn plan_started(observed: &Observed, plan: &mut Plan) {
    if model::has_departed(&observed.vmi.identity()) {
        plan.phase = Phase::Succeeded;
        return;
    }
    // Whatever has become of the old pod: it has given the guest up.
    match &observed.arrival {
        Arrival::None => {}
        Arrival::In(_) => {
            plan.follows_guest = true;
            return;
        }
        Arrival::Lost => {
            plan.phase = Phase::Failed;
            return;
        }
    }
    let pod = observed.pod.as_deref();
    let state = pod_state(pod);
    let has_ended = matches!(
        state,
        PodState::Missing | PodState::Succeeded | PodState::Failed
    );
    if has_ended
        && let Some(since) = observed.left_since
        && let Some(wait) = wait_until(observed.now, since, ARRIVAL_GRACE)
    {
        plan.requeue_in = Some(wait);
        return;
    }
    match state {
        PodState::Missing | PodState::Terminating if observed.is_node_lost => {
            plan.phase = Phase::Failed;
            plan.reason = Some(Reason::NodeUnresponsive);
        }
        PodState::Missing => plan.phase = Phase::Failed,
        state @ (PodState::Succeeded | PodState::Failed) => {
            // virt-handler knows best how the guest ended, but it may be gone. Without the time
            // at which the container ended there is nothing to wait for.
            let ended = pod.and_then(ended_at).unwrap_or(Timestamp::UNIX_EPOCH);
            match wait_until(observed.now, ended, HANDLER_GRACE) {
                Some(wait) => plan.requeue_in = Some(wait),
                None if state == PodState::Succeeded => plan.phase = Phase::Succeeded,
                None => {
                    plan.phase = Phase::Failed;
                    // Kubernetes fails the pods of a deleted node before it deletes them.
                    plan.reason = observed.is_node_lost.then_some(Reason::NodeUnresponsive);
                }
            }
        }
        PodState::Terminating => {}
        PodState::Starting | PodState::Ready => {
            // virt-handler shuts the guest down. If it does not, deleting the pod does.
            if let Some(requested) = &observed.vmi.metadata.deletion_timestamp {
                let grace = observed.vmi.grace_seconds.unwrap_or(30).max(0);
                let grace = SignedDuration::from_secs(grace).saturating_add(SHUTDOWN_GRACE);
                match wait_until(observed.now, requested.0, grace) {
                    Some(wait) => plan.requeue_in = Some(wait),
                    None => plan.steps.push(Step::DeletePod),
                }
            }
            if let Some(pod) = pod {
                plan_interfaces(&observed.vmi, pod, plan);
            }
        }
    }
}

fn plan_interfaces(vmi: &Guest, pod: &LauncherPod, plan: &mut Plan) {
    if nics::annotation(vmi, pod).is_some() {
        plan.steps.push(Step::ChangeNetworks);
    }
    if !nics::gone(vmi, pod).is_empty() {
        plan.steps.push(Step::DropInterfaces);
    }
}

fn plan_final(observed: &Observed, plan: &mut Plan) {
    let is_deleting = observed.vmi.is_deleting();
    match (pod_state(observed.pod.as_deref()), is_deleting) {
        (PodState::Missing, true) => {
            if observed.is_read_elsewhere {
                plan.requeue_in = Some(OTHER_END_WAIT);
            } else if has_finalizer(&observed.vmi) && observed.others.is_empty() {
                match shown_for(observed) {
                    Some(wait) => plan.requeue_in = Some(wait),
                    None => plan.steps.push(Step::RemoveFinalizer),
                }
            }
        }
        // A pod that has ended stays for its logs.
        (PodState::Terminating | PodState::Missing, _)
        | (PodState::Succeeded | PodState::Failed, false) => {}
        (_, true) => plan.steps.push(Step::DeletePod),
        (PodState::Starting | PodState::Ready, false) => {
            let since = final_since(&observed.vmi).unwrap_or(observed.now);
            match wait_until(observed.now, since, RELEASE_GRACE) {
                Some(wait) => plan.requeue_in = Some(wait),
                None => plan.steps.push(Step::DeletePod),
            }
        }
    }
}

/// How long a VMI whose guest ended well is still shown: clients that poll look for `Succeeded`. A VM
/// shows the end of its guest itself.
fn shown_for(observed: &Observed) -> Option<Duration> {
    let vmi = observed.vmi.as_ref();
    let is_of_vm = finalizers_of(vmi).any(|name| name == finalizers::VM_CONTROLLER);
    if is_of_vm || !vmi.has_run() || *vmi.phase() != Phase::Succeeded {
        return None;
    }
    wait_until(observed.now, final_since(vmi)?, SHOWN)
}

pub(crate) fn pod_state(pod: Option<&LauncherPod>) -> PodState {
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

/// Whether every container runs. A readiness probe is about the guest, which has not started yet,
/// so it must not block the start.
pub(super) fn is_ready(pod: &LauncherPod) -> bool {
    let mut containers = pod.containers.iter();
    !pod.containers.is_empty()
        && containers.all(|container| matches!(container.state, ContainerState::Running))
}

/// When the guest's container ended.
fn ended_at(pod: &LauncherPod) -> Option<Timestamp> {
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
    finalizers_of(vmi).any(is_ours)
}

fn finalizers_of(vmi: &Guest) -> impl Iterator<Item = &str> {
    vmi.metadata.finalizers.iter().flatten().map(String::as_str)
}

pub(super) fn is_ours(finalizer: &str) -> bool {
    finalizer == finalizers::VMI || finalizer == finalizers::VMI_OLD
}

/// The rest of the grace period, if any. None of a period that begins far in the future: the clocks
/// of two machines differ, and waiting for this one would take as long as they differ.
fn wait_until(now: Timestamp, since: Timestamp, grace: SignedDuration) -> Option<Duration> {
    let passed = now.duration_since(since);
    if passed < -CLOCKS_DIFFER {
        return None;
    }
    let left = grace.saturating_sub(passed);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}
