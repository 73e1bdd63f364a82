//! The printable status: a list of rows of which the first match wins.

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
use super::plan::{Plan, Step, requested};
use super::status::Done;
use super::strategy::{Requested, Strategy};
use crate::view::{DataVolume, Guest};

/// The input of the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) observed: &'a Observed,
    pub(super) plan: &'a Plan,
    pub(super) done: &'a Done,
}

type Row = (Printable, fn(&Situation<'_>) -> bool);

/// In order of precedence.
pub(super) const ROWS: [Row; 16] = [
    (Printable::Terminating, is_terminating),
    (Printable::Stopping, is_stopping),
    (Printable::Migrating, is_migrating),
    (Printable::Paused, is_paused),
    (Printable::Running, is_running),
    (Printable::ErrorPvcNotFound, |situation| {
        fails(situation, "Synchronized", Reason::FailedPvcNotFound)
    }),
    (Printable::DataVolumeError, has_data_volume_error),
    (Printable::ErrorUnschedulable, |situation| {
        fails(situation, "PodScheduled", Reason::Unschedulable)
    }),
    (Printable::Provisioning, is_provisioning),
    (Printable::WaitingForVolumeBinding, waits_for_binding),
    (Printable::ErrImagePull, |situation| {
        fails(situation, "Synchronized", Reason::ErrImagePull)
    }),
    (Printable::ImagePullBackOff, |situation| {
        fails(situation, "Synchronized", Reason::ImagePullBackOff)
    }),
    (Printable::Starting, is_starting),
    (Printable::CrashLoopBackOff, is_backing_off),
    (Printable::Stopped, |situation| {
        is_over(situation) && !situation.done.created
    }),
    (Printable::WaitingForReceiver, waits_for_receiver),
];

pub(super) fn printable(situation: &Situation<'_>) -> Printable {
    let row = ROWS.into_iter().find(|(_, holds)| holds(situation));
    row.map_or(Printable::Unknown, |(status, _)| status)
}

fn vmi<'a>(situation: &Situation<'a>) -> Option<&'a Guest> {
    situation.observed.own_vmi().map(AsRef::as_ref)
}

fn phase<'a>(situation: &Situation<'a>) -> Option<&'a Phase> {
    vmi(situation).map(Guest::phase)
}

/// There is no VMI, or it has ended.
fn is_over(situation: &Situation<'_>) -> bool {
    vmi(situation).is_none_or(Guest::is_final)
}

fn is_terminating(situation: &Situation<'_>) -> bool {
    situation.observed.vm.metadata.deletion_timestamp.is_some()
}

fn is_stopping(situation: &Situation<'_>) -> bool {
    let is_going = situation.done.deleted || vmi(situation).is_some_and(Guest::is_deleting);
    !is_over(situation) && is_going
}

fn is_migrating(situation: &Situation<'_>) -> bool {
    !is_over(situation) && vmi(situation).is_some_and(|vmi| vmi.status.is_migrating)
}

fn is_paused(situation: &Situation<'_>) -> bool {
    let holds = |vmi: &Guest| conditions::is_true(&vmi.status.conditions, &VmiType::Paused);
    is_running(situation) && vmi(situation).is_some_and(holds)
}

fn is_running(situation: &Situation<'_>) -> bool {
    phase(situation) == Some(&Phase::Running)
}

fn fails(situation: &Situation<'_>, kind: &str, reason: Reason) -> bool {
    let holds = |vmi: &Guest| {
        let condition = conditions::find(&vmi.status.conditions, &VmiType::from(kind));
        condition.is_some_and(|condition| {
            condition.status() == conditions::FALSE && condition.reason() == reason
        })
    };
    vmi(situation).is_some_and(holds)
}

/// Reasons of the condition `Running` of a data volume that does not get on. CDI has two of them.
const FAILED_IMPORTS: [Reason; 9] = [
    Reason::Error,
    Reason::ImagePullFailed,
    Reason::ErrExceededQuota,
    Reason::ClaimNotUsable,
    Reason::ImportFailed,
    Reason::ImportSourceChanged,
    Reason::ImportSourceNotFound,
    Reason::ImportSourceRefused,
    Reason::ImportSourceUnreachable,
];

fn has_data_volume_error(situation: &Situation<'_>) -> bool {
    let failed = |volume: &DataVolume| {
        let running = condition(volume, &DataVolumeConditionType::Running);
        let stopped = running.filter(|running| running.status == conditions::FALSE);
        let reason = stopped.and_then(|stopped| stopped.reason.as_deref());
        let bound = condition(volume, &DataVolumeConditionType::Bound);
        let why = bound.and_then(|bound| bound.reason.as_deref());
        volume.phase == DataVolumePhase::Failed
            || reason.is_some_and(|reason| FAILED_IMPORTS.iter().any(|known| *known == *reason))
            || why == Some("ErrExceededQuota")
    };
    situation
        .observed
        .data_volumes
        .iter()
        .any(|volume| failed(volume))
}

fn is_provisioning(situation: &Situation<'_>) -> bool {
    let is_populating = |volume: &DataVolume| {
        let is_populated = matches!(
            volume.phase,
            DataVolumePhase::Succeeded | DataVolumePhase::PendingPopulation
        );
        let bound = condition(volume, &DataVolumeConditionType::Bound);
        let is_bound = bound.is_some_and(|bound| bound.status == conditions::TRUE);
        !is_populated && (is_bound || volume.phase != DataVolumePhase::WaitForFirstConsumer)
    };
    situation
        .observed
        .data_volumes
        .iter()
        .any(|volume| is_populating(volume))
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

fn waits_for_binding(situation: &Situation<'_>) -> bool {
    is_set_to_start(situation)
        && situation
            .observed
            .claims
            .iter()
            .any(|claim| !claim.is_bound)
}

/// Whether the guest runs or should run.
fn is_set_to_start(situation: &Situation<'_>) -> bool {
    let vmi = vmi(situation);
    let request = requested(&situation.plan.requests);
    match situation.plan.strategy {
        Strategy::Always => true,
        Strategy::Manual => {
            request == Requested::Start || (vmi.is_some() && request != Requested::Stop)
        }
        Strategy::RerunOnFailure => {
            let should_start = request == Requested::Start
                || situation.plan.waits_for.is_some()
                || situation.plan.steps.contains(&Step::CreateVmi);
            should_start || vmi.is_some_and(|vmi| *vmi.phase() != Phase::Succeeded)
        }
        Strategy::Once => vmi.is_none(),
        Strategy::Halted | Strategy::WaitAsReceiver | Strategy::Unknown => false,
    }
}

fn is_starting(situation: &Situation<'_>) -> bool {
    let is_early = matches!(
        phase(situation),
        Some(Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled)
    );
    is_early || (situation.done.created && is_over(situation))
}

fn is_backing_off(situation: &Situation<'_>) -> bool {
    let failure = situation.plan.start_failure.as_ref();
    let count = failure.and_then(|failure| failure.consecutive_fail_count);
    is_over(situation) && count.unwrap_or(0) > 0 && situation.plan.strategy.counts_failures()
}

fn waits_for_receiver(situation: &Situation<'_>) -> bool {
    let is_waiting = phase(situation).is_none_or(|phase| *phase == Phase::WaitingForSync);
    situation.plan.strategy == Strategy::WaitAsReceiver && is_waiting
}
