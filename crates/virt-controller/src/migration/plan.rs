//! Pure planning: maps the observed objects to phase and steps of a migration.

use std::time::Duration;

use kubevirt_api::annotations;
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::migration::{
    MigrationAbortStatus, VirtualMachineInstanceMigrationState as State,
};
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType, VirtualMachineInstancePhase as GuestPhase,
};
use model::MigrationEnd;
use reasons::Reason;

use super::attachment::Attachment;
use super::decentralized;
use super::limits::Turn;
use super::observe::Observed;
use super::steps::{PENDING_SECONDS, Plan, Step, time_left};
use super::view::Migration;
use crate::view::Guest;
use crate::vmi::{GUARANTEED, PodState, pod_state};

/// How long no node may have room for the pod.
const UNSCHEDULABLE_SECONDS: i64 = 300;
/// How long virt-handler may take to plug in what the guest has moved for.
const RESIZE_SECONDS: i64 = 60;
/// How often an attachment pod that starts is looked at.
const ATTACHMENT_INTERVAL: Duration = Duration::from_secs(1);
/// Finished migrations of one guest that are kept.
const KEPT: usize = 5;

pub(super) fn plan(observed: &Observed) -> Plan {
    let migration = observed.migration.as_ref();
    if migration.is_final() {
        return finished(observed);
    }
    if !migration.has_finalizer() && !migration.is_deleting() {
        return Plan::to(migration.phase()).with(Step::AddFinalizer);
    }
    let Some(vmi) = observed.vmi.as_deref() else {
        return Plan::fail("the VirtualMachineInstance does not exist");
    };
    if let (Some(end), Some(other)) = (migration.end(), &observed.other) {
        return match end {
            MigrationEnd::Source => decentralized::send(observed, vmi, other),
            MigrationEnd::Target if model::has_come(&vmi.identity()) && vmi.is_final() => {
                Plan::to(Phase::Succeeded)
            }
            MigrationEnd::Target if vmi.is_final() => Plan::fail("the guest has not come"),
            MigrationEnd::Target => decentralized::receive(observed, vmi, other),
        };
    }
    if vmi.is_final() {
        return Plan::fail("the guest has ended");
    }
    match vmi.migration(migration.uid()) {
        Some(state) => handed_over(observed, vmi, state),
        None if migration.is_deleting() => Plan::fail("cancelled before it began"),
        None => before_hand_over(observed, vmi),
    }
}

/// virt-controller has published the migration on the VMI.
fn handed_over(observed: &Observed, vmi: &Guest, state: &State) -> Plan {
    let migration = observed.migration.as_ref();
    if state.failed == Some(true) {
        let was_aborted = state.abort_status == Some(MigrationAbortStatus::Succeeded);
        if was_aborted && vmi.carries_unwanted_volumes(migration.uid()) {
            return Plan::fail("the change of the volumes was taken back");
        }
        return Plan::fail(failure(state, migration));
    }
    let has_moved = model::has_moved(&vmi.identity());
    if state.completed == Some(true) && has_moved && is_followed(observed, vmi) {
        return match resize_wait(observed, vmi, state) {
            Some(wait) => Plan::to(Phase::Running).again_in(wait),
            None => Plan::to(Phase::Succeeded),
        };
    }
    let phase = match (&state.start_timestamp, &state.target_node_address) {
        (Some(_), _) => Phase::Running,
        (None, Some(_)) => Phase::TargetReady,
        (None, None) => Phase::PreparingTarget,
    };
    let plan = Plan::to(phase.clone());
    if state.abort_requested == Some(true) || has_moved || state.completed == Some(true) {
        return plan;
    }
    let is_unwanted = migration.is_deleting() || vmi.carries_unwanted_volumes(migration.uid());
    if is_unwanted || is_lost(observed) {
        return plan.with(Step::RequestAbort);
    }
    if phase == Phase::Running || migration.phase() != phase {
        return plan;
    }
    match time_left(observed.now, migration.since(), PENDING_SECONDS) {
        Some(left) => plan.again_in(left),
        None => plan.with(Step::RequestAbort),
    }
}

/// Whether the VMI shows the launcher of the pod that the guest has moved to: an update would move the guest
/// again otherwise. A VMI that gets another node gets the launcher by the same write.
fn is_followed(observed: &Observed, vmi: &Guest) -> bool {
    let image = observed.target.as_ref().and_then(|pod| pod.image.as_ref());
    !observed.is_within_node() || image.is_none() || image == vmi.status.launcher_image.as_ref()
}

/// How long the migration waits for the processors and the memory that the guest gets in its new pod.
fn resize_wait(observed: &Observed, vmi: &Guest, state: &State) -> Option<Duration> {
    let made_for = observed.target.as_ref()?.size?;
    let is_to_end = observed.migration.is_deleting() || vmi.status.evacuation_node.is_some();
    if is_to_end || !vmi.awaits_size() || !made_for.covers(vmi.size) {
        return None;
    }
    // By the clock of the node, which may be any time ahead.
    let ended = state.end_timestamp.as_ref()?.0;
    time_left(observed.now, Some(ended), RESIZE_SECONDS).filter(|_| ended <= observed.now)
}

/// Whether the pod that should get the guest cannot get it any more.
fn is_lost(observed: &Observed) -> bool {
    !matches!(
        pod_state(observed.target.as_deref()),
        PodState::Ready | PodState::Starting
    )
}

fn failure(state: &State, migration: &Migration) -> String {
    let message = state.failure_reason.clone();
    let message = message.unwrap_or_else(|| "virt-handler gave no reason".to_owned());
    let was_aborted = state.abort_status == Some(MigrationAbortStatus::Succeeded);
    if was_aborted && !migration.is_deleting() {
        return "the target pod ended, or its node did not prepare it in time".to_owned();
    }
    message
}

fn before_hand_over(observed: &Observed, vmi: &Guest) -> Plan {
    let migration = observed.migration.as_ref();
    if vmi.is_deleting() {
        return Plan::fail("the VirtualMachineInstance is being deleted");
    }
    if let Some(other) = &observed.rival {
        return Plan::fail(format!(
            "migration {other} of the same guest is in progress"
        ));
    }
    // Its object is gone, but the old node may be about to give the guest up.
    if vmi.status.is_migrating {
        return Plan::fail("virt-handler has not ended another migration of the same guest yet");
    }
    // The spec of the VMI names claims that the guest has left: soon it does not.
    if vmi.volumes_arrived() {
        return Plan::to(migration.phase());
    }
    match pod_state(observed.target.as_deref()) {
        PodState::Missing if migration.is_waiting() => pending(observed, vmi),
        PodState::Missing | PodState::Terminating => Plan::fail("the target pod was deleted"),
        PodState::Succeeded | PodState::Failed => Plan::fail("the target pod ended"),
        PodState::Starting => starting(observed),
        PodState::Ready if *vmi.phase() != GuestPhase::Running => {
            Plan::fail("the guest is not running")
        }
        PodState::Ready if is_on_same_node(observed, vmi) && !vmi.stays_on_node() => {
            Plan::fail("the target pod is on the guest's own node")
        }
        PodState::Ready if vmi.needs_guarantee && !has_own_cpus(observed) => Plan::fail(
            "dedicated CPUs need a pod of QoS class Guaranteed, and the target pod is not",
        ),
        PodState::Ready if !has_wanted_claims(observed, vmi) => Plan::fail(
            "the volumes of the guest that are to move have changed since the target pod was made",
        ),
        PodState::Ready => volumes_come_along(observed),
    }
}

/// Whether the pod was made for the claims that the guest is to have there: it would run on others without a copy.
fn has_wanted_claims(observed: &Observed, vmi: &Guest) -> bool {
    let target = observed.target.as_deref();
    target.is_some_and(|pod| pod.moves.as_ref() == Some(&vmi.volume_moves()))
}

/// Otherwise the guest would share the CPUs that it is bound to.
fn has_own_cpus(observed: &Observed) -> bool {
    let target = observed.target.as_deref();
    target.is_some_and(|pod| pod.qos_class.as_deref() == Some(GUARANTEED))
}

/// The guest is handed over once the volumes that were attached to it can be in its new pod.
fn volumes_come_along(observed: &Observed) -> Plan {
    let target = observed.target.as_deref();
    let takes_volumes = target.is_some_and(|pod| pod.takes_volumes);
    let why = match &observed.attachment {
        Attachment::NotNeeded => return Plan::to(Phase::Scheduled).with(Step::HandOver),
        _ if !takes_volumes => {
            return Plan::fail(
                "volumes were attached to the guest while it runs, and new pods have no place for such: enable \
                 the feature gate DeclarativeHotplugVolumes",
            );
        }
        Attachment::Ready { .. } => return Plan::to(Phase::Scheduled).with(Step::HandOver),
        Attachment::Failed(message) => return Plan::fail(message.clone()),
        Attachment::Missing => None,
        Attachment::Waits(why) => Some(why),
    };
    let created = target.and_then(|pod| pod.metadata.creation_timestamp.as_ref());
    if time_left(observed.now, created.map(|at| at.0), PENDING_SECONDS).is_none() {
        let why = why
            .filter(|why| !why.is_empty())
            .map_or("it did not become ready", |why| why);
        return Plan::fail(format!(
            "the volumes that were attached to the guest did not come to its new pod in {PENDING_SECONDS} s: {why}"
        ));
    }
    let plan = Plan::to(Phase::Scheduling).again_in(ATTACHMENT_INTERVAL);
    match why {
        None => plan.with(Step::CreateAttachment),
        Some(why) => {
            let why = Some(why.as_str()).filter(|why| !why.is_empty());
            let why = why.unwrap_or("their attachment pod does not run yet");
            plan.waits_for_volumes(format!(
                "the volumes that were attached to the guest are not with its new pod yet: {why}"
            ))
        }
    }
}

fn is_on_same_node(observed: &Observed, vmi: &Guest) -> bool {
    let target = observed.target.as_deref();
    target.is_some_and(|pod| pod.node_name == vmi.status.node_name)
}

/// There is no target pod yet.
fn pending(observed: &Observed, vmi: &Guest) -> Plan {
    let plan = Plan::to(Phase::Pending);
    if *vmi.phase() != GuestPhase::Running {
        return plan;
    }
    let kind = VirtualMachineInstanceConditionType::LiveMigratable;
    if let Some(condition) = conditions::find(&vmi.status.conditions, &kind)
        && condition.status == conditions::FALSE
    {
        return Plan::fail(format!(
            "the guest cannot be migrated: {}",
            condition.message()
        ));
    }
    match observed.turn {
        Turn::Now => plan.with(Step::CreateTarget),
        Turn::In(wait) => plan.again_in(wait),
    }
}

fn starting(observed: &Observed) -> Plan {
    let migration = observed.migration.as_ref();
    let pod = observed.target.as_deref();
    let scheduled = pod.and_then(|pod| pod.condition("PodScheduled"));
    let why = scheduled.filter(|one| one.reason.as_deref() == Some(Reason::Unschedulable.as_str()));
    let (annotation, default) = match why {
        Some(_) => (
            annotations::MIGRATION_UNSCHEDULABLE_POD_TIMEOUT_SECONDS,
            UNSCHEDULABLE_SECONDS,
        ),
        None => (
            annotations::MIGRATION_PENDING_POD_TIMEOUT_SECONDS,
            PENDING_SECONDS,
        ),
    };
    let written = migration.annotation(annotation);
    let limit = written
        .and_then(|text| text.parse().ok())
        .unwrap_or(default);
    let created = pod.and_then(|pod| pod.metadata.creation_timestamp.as_ref());
    if let Some(left) = time_left(observed.now, created.map(|at| at.0), limit) {
        return Plan::to(Phase::Scheduling).again_in(left);
    }
    let why = why.and_then(|one| one.message.as_deref());
    let why = why.unwrap_or("it did not become ready");
    Plan::fail(format!(
        "the target pod was given up after {limit} s: {why}"
    ))
}

fn finished(observed: &Observed) -> Plan {
    let migration = observed.migration.as_ref();
    let plan = Plan::to(migration.phase());
    match pod_state(observed.target.as_deref()) {
        PodState::Missing => {}
        // It has the guest.
        _ if migration.phase() == Phase::Succeeded || observed.is_target_current => {}
        // It has no guest. On a lost node it would stay, and the migration with it.
        PodState::Terminating => {}
        _ => return plan.with(Step::DeleteTarget),
    }
    if migration.has_finalizer() {
        plan.with(Step::RemoveFinalizer)
    } else if !migration.is_deleting() && observed.newer >= KEPT {
        plan.with(Step::CleanUp)
    } else {
        plan
    }
}
