//! The phase that follows from a domain's state, and why a guest has failed: pure.

use kubevirt_api::{VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase};
use launcher_channel::{DomainState, GuestState, StopReason};
use model::SAVING_VOLUME;
use reasons::Reason;

use super::plan::{grace_seconds, phase};

/// Whether the kernel's OOM killer has killed a process in the launcher's container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum MemoryState {
    #[default]
    Sufficient,
    Exhausted,
}

/// Why a guest has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// The phase that follows from the domain's state.
pub(super) fn next_phase(vmi: &VirtualMachineInstance, domain: Option<DomainState>) -> Phase {
    let deleted = vmi.metadata.deletion_timestamp.is_some();
    match (phase(vmi), domain) {
        // A final phase never changes.
        (current @ (Phase::Succeeded | Phase::Failed), _) => current,
        (current, Some(DomainState::Stopped(reason))) => {
            final_phase(vmi, reason).unwrap_or(current)
        }
        (_, Some(DomainState::PausedPostcopyFailed)) => Phase::Failed,
        (_, None) if deleted => Phase::Failed,
        (Phase::Scheduled, Some(_)) => Phase::Running,
        (current, _) => current,
    }
}

/// `None` if the guest continues on another node.
fn final_phase(vmi: &VirtualMachineInstance, reason: StopReason) -> Option<Phase> {
    match reason {
        StopReason::Migrated => None,
        // The guest could have powered off by itself and did not.
        StopReason::Destroyed if can_power_off(vmi) => Some(Phase::Failed),
        StopReason::Shutdown
        | StopReason::Destroyed
        | StopReason::Saved
        | StopReason::FromSnapshot => Some(Phase::Succeeded),
        StopReason::Crashed
        | StopReason::Panicked
        | StopReason::Watchdog
        | StopReason::StartFailed
        | StopReason::Unknown => Some(Phase::Failed),
    }
}

/// Whether the guest has ended with its state saved, as virt-controller wants it.
pub(super) fn is_suspended(vmi: &VirtualMachineInstance, domain: Option<DomainState>) -> bool {
    let mut volumes = vmi.spec.volumes.iter();
    domain == Some(DomainState::Stopped(StopReason::Saved))
        && volumes.any(|volume| volume.name == SAVING_VOLUME && volume.memory_dump.is_some())
}

fn can_power_off(vmi: &VirtualMachineInstance) -> bool {
    let features = vmi.spec.domain.features.as_ref();
    let acpi = features.and_then(|features| features.acpi.as_ref());
    let acpi = acpi.and_then(|acpi| acpi.enabled).unwrap_or(true);
    acpi && grace_seconds(vmi) > 0
}

/// Why the guest has failed; `None` in any other phase.
pub(crate) fn failure(
    phase: &Phase,
    state: Option<&GuestState>,
    memory: MemoryState,
) -> Option<Failure> {
    if *phase != Phase::Failed {
        return None;
    }
    let domain = state.and_then(|state| state.domain);
    let note = state.and_then(|state| state.note.clone());
    let or = |message: &str| note.clone().unwrap_or_else(|| message.to_owned());
    let (reason, message) = match domain {
        Some(DomainState::Stopped(reason)) => match reason {
            StopReason::Panicked => (Reason::GuestPanicked, or("the guest kernel panicked")),
            StopReason::Watchdog => (Reason::WatchdogExpired, or("the watchdog expired")),
            StopReason::StartFailed => (Reason::StartFailed, or("the guest could not be started")),
            StopReason::Destroyed => (
                Reason::ShutdownForced,
                or("the guest did not power off within its grace period and was destroyed"),
            ),
            _ if memory == MemoryState::Exhausted => (
                Reason::OOMKilled,
                "the kernel killed QEMU because the pod reached its memory limit".to_owned(),
            ),
            _ => (Reason::QEMUCrashed, or("QEMU ended unexpectedly")),
        },
        Some(DomainState::PausedPostcopyFailed) => (
            Reason::PostcopyFailed,
            "the migration failed after the guest's hand-over: its memory is lost".to_owned(),
        ),
        Some(_) | None => (
            Reason::ShutdownForced,
            "the VMI was deleted before its guest ran".to_owned(),
        ),
    };
    Some(Failure { reason, message })
}

#[cfg(test)]
mod tests {
    use kubevirt_api::vmi_status::VirtualMachineInstanceStatus;

    use super::*;

    fn vmi(phase: Phase, grace: Option<i64>) -> VirtualMachineInstance {
        let mut vmi = VirtualMachineInstance::default();
        vmi.spec.termination_grace_period_seconds = grace;
        vmi.status = Some(VirtualMachineInstanceStatus {
            phase: Some(phase),
            ..VirtualMachineInstanceStatus::default()
        });
        vmi
    }

    #[test]
    fn only_a_guest_that_is_to_be_suspended_is_suspended() {
        let saved = Some(DomainState::Stopped(StopReason::Saved));
        let crashed = Some(DomainState::Stopped(StopReason::Crashed));
        let plain = vmi(Phase::Running, None);
        let mut saving = plain.clone();
        let volume = serde_json::json!({"name": SAVING_VOLUME, "memoryDump": {"claimName": "c"}});
        saving.spec.volumes = vec![serde_json::from_value(volume).unwrap()];
        for (vmi, domain, expected) in [
            (&saving, saved, true),
            (&saving, crashed, false),
            (&saving, None, false),
            // Somebody has used virsh in the pod.
            (&plain, saved, false),
        ] {
            assert_eq!(is_suspended(vmi, domain), expected, "{domain:?}");
        }
    }

    /// All domain states against all phases that virt-handler may change.
    #[test]
    fn domain_state_decides_the_phase() {
        use DomainState::{
            PausedByIoError, PausedByUser, PausedOther, PausedPostcopyFailed, Running, Stopped,
        };
        use Phase::{Failed, Scheduled, Scheduling, Succeeded};
        let ended = |reason| Some(Stopped(reason));
        let table = [
            (None, [Scheduling, Scheduled, Phase::Running]),
            (Some(Running), [Scheduling, Phase::Running, Phase::Running]),
            (
                Some(PausedByUser),
                [Scheduling, Phase::Running, Phase::Running],
            ),
            (
                Some(PausedByIoError),
                [Scheduling, Phase::Running, Phase::Running],
            ),
            (
                Some(PausedOther),
                [Scheduling, Phase::Running, Phase::Running],
            ),
            (Some(PausedPostcopyFailed), [Failed, Failed, Failed]),
            (ended(StopReason::Crashed), [Failed, Failed, Failed]),
            (ended(StopReason::Panicked), [Failed, Failed, Failed]),
            (ended(StopReason::Watchdog), [Failed, Failed, Failed]),
            (ended(StopReason::StartFailed), [Failed, Failed, Failed]),
            (ended(StopReason::Unknown), [Failed, Failed, Failed]),
            (ended(StopReason::Destroyed), [Failed, Failed, Failed]),
            (
                ended(StopReason::Shutdown),
                [Succeeded, Succeeded, Succeeded],
            ),
            (ended(StopReason::Saved), [Succeeded, Succeeded, Succeeded]),
            (
                ended(StopReason::FromSnapshot),
                [Succeeded, Succeeded, Succeeded],
            ),
            (
                ended(StopReason::Migrated),
                [Scheduling, Scheduled, Phase::Running],
            ),
        ];
        for (domain, expected) in table {
            let phases = [Scheduling, Scheduled, Phase::Running];
            for (before, expected) in phases.into_iter().zip(expected) {
                let after = next_phase(&vmi(before.clone(), None), domain);
                assert_eq!(after, expected, "{before:?} {domain:?}");
            }
            for over in [Succeeded, Failed] {
                assert_eq!(
                    next_phase(&vmi(over.clone(), None), domain),
                    over,
                    "{domain:?}"
                );
            }
        }
    }

    #[test]
    fn destroyed_guest_failed_if_it_could_have_powered_off() {
        let destroyed = Some(DomainState::Stopped(StopReason::Destroyed));
        let check = |vmi: &VirtualMachineInstance, expected| {
            assert_eq!(next_phase(vmi, destroyed), expected);
        };
        check(&vmi(Phase::Running, Some(30)), Phase::Failed);
        check(&vmi(Phase::Running, Some(0)), Phase::Succeeded);
        let mut without_acpi = vmi(Phase::Running, Some(30));
        without_acpi.spec.domain.features =
            serde_json::from_str(r#"{"acpi": {"enabled": false}}"#).unwrap();
        check(&without_acpi, Phase::Succeeded);
    }

    #[test]
    fn vmi_deleted_before_its_guest_ran_has_failed() {
        let mut deleted = vmi(Phase::Scheduled, None);
        deleted.metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
        );
        assert_eq!(next_phase(&deleted, None), Phase::Failed);
    }

    #[test]
    fn each_failure_has_reason_and_message() {
        let state = |reason, note: Option<&str>| GuestState {
            domain: Some(DomainState::Stopped(reason)),
            note: note.map(ToOwned::to_owned),
            ..GuestState::default()
        };
        let crashed = state(StopReason::Crashed, Some("QEMU was ended by signal 9"));
        let table = [
            (
                crashed.clone(),
                MemoryState::Sufficient,
                "QEMUCrashed",
                "signal 9",
            ),
            (crashed, MemoryState::Exhausted, "OOMKilled", "memory limit"),
            (
                state(StopReason::Panicked, None),
                MemoryState::Exhausted,
                "GuestPanicked",
                "panicked",
            ),
            (
                state(StopReason::Watchdog, None),
                MemoryState::Sufficient,
                "WatchdogExpired",
                "watchdog",
            ),
            (
                state(StopReason::StartFailed, Some("no")),
                MemoryState::Sufficient,
                "StartFailed",
                "no",
            ),
            (
                state(StopReason::Destroyed, None),
                MemoryState::Sufficient,
                "ShutdownForced",
                "grace",
            ),
            (
                state(StopReason::Unknown, None),
                MemoryState::Sufficient,
                "QEMUCrashed",
                "unexpectedly",
            ),
        ];
        for (state, memory, reason, part) in table {
            let found = failure(&Phase::Failed, Some(&state), memory).unwrap();
            assert_eq!(found.reason.as_str(), reason, "{state:?}");
            assert!(found.message.contains(part), "{}", found.message);
            assert_eq!(failure(&Phase::Succeeded, Some(&state), memory), None);
        }
    }
}
