//! The guest's status, from libvirt's domain state and the recorded phase. Pure.

use launcher_channel::{DomainState, StopReason};
use libvirt::{PausedReason, ShutoffReason};
use serde::{Deserialize, Serialize};

/// The guest's progress in this pod; it only ever advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// A plan is known, nothing was started.
    Planned,
    /// A paused start was requested from libvirt: the guest has never run.
    Starting,
    /// A guest of another pod is expected or arrives: it has never run here.
    Receiving,
    /// All of a guest of another pod is here, paused; the other pod has not given it up yet.
    Received,
    /// The paused guest exists and is being resumed: it may have run.
    Resuming,
    /// The guest has run, or its plan starts it paused.
    Started,
    Ended(StopReason),
}

/// Whether the guest may be started, lives or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Startable,
    Alive(DomainState),
    Ended(StopReason),
}

/// `observed` is `None` when libvirt knows no such domain.
pub(crate) fn classify(phase: Phase, observed: Option<libvirt::DomainState>) -> Status {
    use libvirt::DomainState as Observed;
    match phase {
        Phase::Ended(reason) => return Status::Ended(reason),
        Phase::Starting | Phase::Receiving => return Status::Startable,
        Phase::Planned | Phase::Received | Phase::Resuming | Phase::Started => {}
    }
    match observed {
        Some(Observed::Running(_) | Observed::Blocked | Observed::ShuttingDown) => {
            Status::Alive(DomainState::Running)
        }
        // Paused until the other pod has given it up.
        Some(Observed::Paused(PausedReason::User)) if phase == Phase::Received => {
            Status::Alive(DomainState::PausedOther)
        }
        Some(Observed::Paused(PausedReason::User)) => Status::Alive(DomainState::PausedByUser),
        Some(Observed::Paused(PausedReason::IoError)) => {
            Status::Alive(DomainState::PausedByIoError)
        }
        Some(Observed::Paused(PausedReason::PostcopyFailed)) => {
            Status::Alive(DomainState::PausedPostcopyFailed)
        }
        // A domain whose kernel panicked may be kept paused.
        Some(Observed::Crashed | Observed::Paused(PausedReason::Crashed)) => {
            Status::Ended(StopReason::Panicked)
        }
        Some(
            Observed::Paused(_) | Observed::Suspended | Observed::NoState | Observed::Unknown(_),
        ) => Status::Alive(DomainState::PausedOther),
        Some(Observed::Shutoff(reason)) => not_running(phase, Some(reason)),
        None => not_running(phase, None),
    }
}

/// The status of a guest that was given up to another pod: whatever ends its QEMU here, the guest has moved,
/// and what is left of it must not be resumed.
pub(crate) fn given_up(status: Status) -> Status {
    match status {
        Status::Startable | Status::Ended(_) => Status::Ended(StopReason::Migrated),
        Status::Alive(_) => Status::Alive(DomainState::PausedOther),
    }
}

fn not_running(phase: Phase, reason: Option<ShutoffReason>) -> Status {
    if phase == Phase::Planned {
        Status::Startable
    } else {
        Status::Ended(stop_reason(reason))
    }
}

fn stop_reason(reason: Option<ShutoffReason>) -> StopReason {
    match reason {
        Some(ShutoffReason::Shutdown) => StopReason::Shutdown,
        Some(ShutoffReason::Destroyed) => StopReason::Destroyed,
        Some(ShutoffReason::Migrated) => StopReason::Migrated,
        // If a guest has run and libvirt can no longer reach its QEMU, QEMU has died.
        Some(ShutoffReason::Crashed | ShutoffReason::Failed | ShutoffReason::Daemon) => {
            StopReason::Crashed
        }
        Some(ShutoffReason::Saved) => StopReason::Saved,
        Some(ShutoffReason::FromSnapshot) => StopReason::FromSnapshot,
        Some(ShutoffReason::Unknown) | None => StopReason::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use libvirt::{DomainState as Observed, RunningReason};

    use super::*;

    const REASONS: [ShutoffReason; 9] = [
        ShutoffReason::Unknown,
        ShutoffReason::Shutdown,
        ShutoffReason::Destroyed,
        ShutoffReason::Crashed,
        ShutoffReason::Migrated,
        ShutoffReason::Saved,
        ShutoffReason::Failed,
        ShutoffReason::FromSnapshot,
        ShutoffReason::Daemon,
    ];

    #[test]
    fn guest_that_may_have_run_is_never_started_again() {
        let shutoff = REASONS.map(|reason| Some(Observed::Shutoff(reason)));
        for observed in shutoff.into_iter().chain([None]) {
            for phase in [Phase::Resuming, Phase::Started] {
                let status = classify(phase, observed);
                assert!(
                    matches!(status, Status::Ended(_)),
                    "{phase:?} {observed:?} {status:?}"
                );
            }
            let ended = classify(Phase::Ended(StopReason::Shutdown), observed);
            assert_eq!(ended, Status::Ended(StopReason::Shutdown));
        }
    }

    #[test]
    fn guest_that_has_not_arrived_does_not_count_as_alive() {
        let running = Some(Observed::Running(RunningReason::Other));
        assert_eq!(classify(Phase::Receiving, running), Status::Startable);
        let paused = Some(Observed::Paused(PausedReason::User));
        let received = classify(Phase::Received, paused);
        assert_eq!(received, Status::Alive(DomainState::PausedOther));
        assert!(matches!(classify(Phase::Received, None), Status::Ended(_)));
    }

    #[test]
    fn guest_that_was_given_up_has_moved_however_its_qemu_ends() {
        let shutoff = REASONS.map(|reason| Some(Observed::Shutoff(reason)));
        for observed in shutoff.into_iter().chain([None, Some(Observed::Crashed)]) {
            for phase in [Phase::Started, Phase::Ended(StopReason::Destroyed)] {
                let status = given_up(classify(phase, observed));
                let moved = Status::Ended(StopReason::Migrated);
                assert_eq!(status, moved, "{phase:?} {observed:?}");
            }
        }
        // Nothing resumes a guest that is paused for this reason.
        for reason in [
            PausedReason::User,
            PausedReason::IoError,
            PausedReason::Migration,
        ] {
            let status = given_up(classify(Phase::Started, Some(Observed::Paused(reason))));
            assert_eq!(
                status,
                Status::Alive(DomainState::PausedOther),
                "{reason:?}"
            );
        }
    }

    #[test]
    fn interrupted_start_is_repeated_in_every_domain_state() {
        let shutoff = REASONS.map(|reason| Some(Observed::Shutoff(reason)));
        let alive = [
            Some(Observed::Paused(PausedReason::User)),
            Some(Observed::Running(RunningReason::Other)),
            None,
        ];
        for observed in shutoff.into_iter().chain(alive) {
            assert_eq!(
                classify(Phase::Starting, observed),
                Status::Startable,
                "{observed:?}"
            );
        }
    }

    #[test]
    fn paused_states_keep_their_reason() {
        let check = |observed, expected| {
            for phase in [Phase::Planned, Phase::Resuming, Phase::Started] {
                assert_eq!(
                    classify(phase, Some(observed)),
                    Status::Alive(expected),
                    "{observed:?}"
                );
            }
        };
        let running = Observed::Running(RunningReason::Other);
        check(running, DomainState::Running);
        check(
            Observed::Paused(PausedReason::User),
            DomainState::PausedByUser,
        );
        check(
            Observed::Paused(PausedReason::IoError),
            DomainState::PausedByIoError,
        );
        check(
            Observed::Paused(PausedReason::Migration),
            DomainState::PausedOther,
        );
    }

    #[test]
    fn shutoff_reasons_map_to_stop_reasons() {
        let check = |reason, expected| {
            let status = classify(Phase::Started, Some(Observed::Shutoff(reason)));
            assert_eq!(status, Status::Ended(expected), "{reason:?}");
        };
        check(ShutoffReason::Shutdown, StopReason::Shutdown);
        check(ShutoffReason::Destroyed, StopReason::Destroyed);
        check(ShutoffReason::Crashed, StopReason::Crashed);
        check(ShutoffReason::Failed, StopReason::Crashed);
        assert_eq!(
            classify(Phase::Started, Some(Observed::Crashed)),
            Status::Ended(StopReason::Panicked)
        );
    }
}
