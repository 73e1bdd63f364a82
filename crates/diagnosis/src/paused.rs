//! Guests that are paused.

use kubevirt_api::{
    conditions::{self, Condition},
    vmi::StartStrategy,
    vmi_status::VirtualMachineInstanceConditionType as Type,
};
use reasons::Reason;

use crate::{Finding, Observed};

/// The condition `Paused`, if it is true.
pub(crate) fn pause(observed: &Observed) -> Option<&impl Condition> {
    let condition = observed.condition(&Type::Paused)?;
    (condition.status() == conditions::TRUE).then_some(condition)
}

pub(crate) fn io_error(observed: &Observed) -> Vec<Finding> {
    let sentence = "A disk of the guest could not be read or written, and QEMU paused the guest; it \
                    resumes by itself once the disk works again. Is the volume full?";
    let next = observed.kubectl(&format!("describe vmi {}", observed.name));
    paused(observed, Reason::PausedIOError, sentence, next)
}

pub(crate) fn started(observed: &Observed) -> Vec<Finding> {
    if !starts_paused(observed) {
        return Vec::new();
    }
    let next = observed.virtctl(&format!("unpause vmi {}", observed.name));
    let sentence = "The guest was started paused, as its spec requests; unpause it to run it.";
    paused(observed, Reason::PausedByUser, sentence, next)
        .into_iter()
        .map(|finding| finding.evidence(observed.vmi_object(), "spec.startStrategy", "Paused"))
        .collect()
}

pub(crate) fn by_user(observed: &Observed) -> Vec<Finding> {
    if starts_paused(observed) {
        return Vec::new();
    }
    let next = observed.virtctl(&format!("unpause vmi {}", observed.name));
    let sentence = "A user paused the guest; unpause it to continue.";
    paused(observed, Reason::PausedByUser, sentence, next)
}

pub(crate) fn by_migration(observed: &Observed) -> Vec<Finding> {
    let next = observed.kubectl("get virtualmachineinstancemigrations");
    let sentence = "The guest is paused so that its migration can finish.";
    paused(observed, Reason::PausedByMigrationMonitor, sentence, next)
}

fn paused(observed: &Observed, reason: Reason, sentence: &str, next: String) -> Vec<Finding> {
    pause(observed)
        .filter(|condition| reason == *condition.reason())
        .map(|condition| {
            Finding::new(sentence)
                .because(reason)
                .evidence(
                    observed.vmi_object(),
                    "status.conditions[Paused]",
                    format!("{reason}: {}", reason.without_advice(condition.message())),
                )
                .next(next)
        })
        .into_iter()
        .collect()
}

fn starts_paused(observed: &Observed) -> bool {
    let spec = observed.own_vmi().map(|vmi| &vmi.spec);
    spec.is_some_and(|spec| spec.start_strategy == Some(StartStrategy::Paused))
}
