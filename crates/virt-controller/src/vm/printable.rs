//! The one word for tables: a list of rows, and the first that matches wins.

use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::data_volume_status::{
    DataVolumeCondition, DataVolumeConditionType, DataVolumePhase,
};
use kubevirt_api::vm_status::VirtualMachinePrintableStatus as Printable;
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType as VmiType, VirtualMachineInstancePhase as Phase,
};
use reasons::Reason;

use super::observe::Observed;
use super::plan::{Plan, Step, asked};
use super::status::Done;
use super::strategy::{Asked, Strategy};
use crate::view::{DataVolume, Guest};

/// What the rows judge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) seen: &'a Observed,
    pub(super) plan: &'a Plan,
    pub(super) done: &'a Done,
}

type Row = (Printable, fn(&Sight<'_>) -> bool);

/// In order of precedence.
pub(super) const ROWS: [Row; 16] = [
    (Printable::Terminating, is_terminating),
    (Printable::Stopping, is_stopping),
    (Printable::Migrating, is_migrating),
    (Printable::Paused, is_paused),
    (Printable::Running, is_running),
    (Printable::ErrorPvcNotFound, |sight| {
        fails(sight, "Synchronized", Reason::FailedPvcNotFound)
    }),
    (Printable::DataVolumeError, has_data_volume_error),
    (Printable::ErrorUnschedulable, |sight| {
        fails(sight, "PodScheduled", Reason::Unschedulable)
    }),
    (Printable::Provisioning, is_provisioning),
    (Printable::WaitingForVolumeBinding, waits_for_binding),
    (Printable::ErrImagePull, |sight| {
        fails(sight, "Synchronized", Reason::ErrImagePull)
    }),
    (Printable::ImagePullBackOff, |sight| {
        fails(sight, "Synchronized", Reason::ImagePullBackOff)
    }),
    (Printable::Starting, is_starting),
    (Printable::CrashLoopBackOff, is_backing_off),
    (Printable::Stopped, |sight| {
        is_over(sight) && !sight.done.created
    }),
    (Printable::WaitingForReceiver, waits_for_receiver),
];

pub(super) fn printable(sight: &Sight<'_>) -> Printable {
    let row = ROWS.into_iter().find(|(_, holds)| holds(sight));
    row.map_or(Printable::Unknown, |(word, _)| word)
}

fn vmi<'a>(sight: &Sight<'a>) -> Option<&'a Guest> {
    sight.seen.own_vmi().map(AsRef::as_ref)
}

fn phase<'a>(sight: &Sight<'a>) -> Option<&'a Phase> {
    vmi(sight).map(Guest::phase)
}

/// There is no VMI, or only what is left of one.
fn is_over(sight: &Sight<'_>) -> bool {
    vmi(sight).is_none_or(Guest::is_final)
}

fn is_terminating(sight: &Sight<'_>) -> bool {
    sight.seen.vm.metadata.deletion_timestamp.is_some()
}

fn is_stopping(sight: &Sight<'_>) -> bool {
    let is_going = sight.done.deleted || vmi(sight).is_some_and(Guest::is_deleting);
    !is_over(sight) && is_going
}

fn is_migrating(sight: &Sight<'_>) -> bool {
    !is_over(sight) && vmi(sight).is_some_and(|vmi| vmi.status.is_migrating)
}

fn is_paused(sight: &Sight<'_>) -> bool {
    let says = |vmi: &Guest| conditions::is_true(&vmi.status.conditions, &VmiType::Paused);
    is_running(sight) && vmi(sight).is_some_and(says)
}

fn is_running(sight: &Sight<'_>) -> bool {
    phase(sight) == Some(&Phase::Running)
}

fn fails(sight: &Sight<'_>, kind: &str, reason: Reason) -> bool {
    let says = |vmi: &Guest| {
        let condition = conditions::find(&vmi.status.conditions, &VmiType::from(kind));
        condition.is_some_and(|condition| {
            condition.status() == conditions::FALSE && condition.reason() == reason
        })
    };
    vmi(sight).is_some_and(says)
}

fn has_data_volume_error(sight: &Sight<'_>) -> bool {
    let failed = |volume: &DataVolume| {
        let running = condition(volume, &DataVolumeConditionType::Running);
        let stopped = running.filter(|running| running.status == conditions::FALSE);
        let reason = stopped.and_then(|stopped| stopped.reason.as_deref());
        let bound = condition(volume, &DataVolumeConditionType::Bound);
        let why = bound.and_then(|bound| bound.reason.as_deref());
        volume.phase == DataVolumePhase::Failed
            || matches!(reason, Some("Error" | "ImagePullFailed"))
            || why == Some("ErrExceededQuota")
    };
    sight.seen.data_volumes.iter().any(|volume| failed(volume))
}

fn is_provisioning(sight: &Sight<'_>) -> bool {
    let coming = |volume: &DataVolume| {
        let is_there = matches!(
            volume.phase,
            DataVolumePhase::Succeeded | DataVolumePhase::PendingPopulation
        );
        let bound = condition(volume, &DataVolumeConditionType::Bound);
        let is_bound = bound.is_some_and(|bound| bound.status == conditions::TRUE);
        !is_there && (is_bound || volume.phase != DataVolumePhase::WaitForFirstConsumer)
    };
    sight.seen.data_volumes.iter().any(|volume| coming(volume))
}

fn condition<'a>(
    volume: &'a DataVolume,
    kind: &DataVolumeConditionType,
) -> Option<&'a DataVolumeCondition> {
    volume
        .conditions
        .iter()
        .find(|condition| condition.type_ == *kind)
}

fn waits_for_binding(sight: &Sight<'_>) -> bool {
    is_set_to_start(sight) && sight.seen.claims.iter().any(|claim| !claim.is_bound)
}

/// Whether the guest runs, or would if nothing kept it.
fn is_set_to_start(sight: &Sight<'_>) -> bool {
    let vmi = vmi(sight);
    let asked = asked(&sight.plan.requests);
    match sight.plan.strategy {
        Strategy::Always => true,
        Strategy::Manual => asked == Asked::Start || (vmi.is_some() && asked != Asked::Stop),
        Strategy::RerunOnFailure => {
            let is_due = asked == Asked::Start
                || sight.plan.waits_for.is_some()
                || sight.plan.steps.contains(&Step::CreateVmi);
            is_due || vmi.is_some_and(|vmi| *vmi.phase() != Phase::Succeeded)
        }
        Strategy::Once => vmi.is_none(),
        Strategy::Halted | Strategy::WaitAsReceiver | Strategy::Unclear => false,
    }
}

fn is_starting(sight: &Sight<'_>) -> bool {
    let is_early = matches!(
        phase(sight),
        Some(Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled)
    );
    is_early || (sight.done.created && is_over(sight))
}

fn is_backing_off(sight: &Sight<'_>) -> bool {
    let failure = sight.plan.start_failure.as_ref();
    let count = failure.and_then(|failure| failure.consecutive_fail_count);
    is_over(sight) && count.unwrap_or(0) > 0 && sight.plan.strategy.counts_failures()
}

fn waits_for_receiver(sight: &Sight<'_>) -> bool {
    let is_waiting = phase(sight).is_none_or(|phase| *phase == Phase::WaitingForSync);
    sight.plan.strategy == Strategy::WaitAsReceiver && is_waiting
}
