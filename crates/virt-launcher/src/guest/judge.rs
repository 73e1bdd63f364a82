//! What libvirt's answer means, given what was done before. Pure.

use launcher_channel::{DomainState, StopReason};
use libvirt::{PausedReason, ShutoffReason};
use serde::{Deserialize, Serialize};

/// How far this pod has come with its guest; it only ever moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// A plan is known, nothing was started.
    Planned,
    /// libvirt was asked to make it, paused; whatever there is of it has never run.
    Starting,
    /// It was made and is to be let go: it may have run.
    Resuming,
    /// It has run, or its plan wants it paused.
    Started,
    Ended(StopReason),
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    MayStart,
    Alive(DomainState),
    Ended(StopReason),
}

/// `seen` is `None` when libvirt knows no such domain.
pub(crate) fn judge(phase: Phase, seen: Option<libvirt::DomainState>) -> Verdict {
    use libvirt::DomainState as Seen;
    match phase {
        Phase::Ended(reason) => return Verdict::Ended(reason),
        Phase::Starting => return Verdict::MayStart,
        Phase::Planned | Phase::Resuming | Phase::Started => {}
    }
    match seen {
        Some(Seen::Running | Seen::Blocked | Seen::ShuttingDown) => {
            Verdict::Alive(DomainState::Running)
        }
        Some(Seen::Paused(PausedReason::User)) => Verdict::Alive(DomainState::PausedByUser),
        Some(Seen::Paused(PausedReason::IoError)) => Verdict::Alive(DomainState::PausedByIoError),
        Some(Seen::Paused(PausedReason::PostcopyFailed)) => {
            Verdict::Alive(DomainState::PausedPostcopyFailed)
        }
        // A kernel that panicked stands still where its domain is kept.
        Some(Seen::Crashed | Seen::Paused(PausedReason::Crashed)) => {
            Verdict::Ended(StopReason::Panicked)
        }
        Some(Seen::Paused(_) | Seen::Suspended | Seen::NoState | Seen::Unknown(_)) => {
            Verdict::Alive(DomainState::PausedOther)
        }
        Some(Seen::Shutoff(reason)) => not_running(phase, Some(reason)),
        None => not_running(phase, None),
    }
}

fn not_running(phase: Phase, reason: Option<ShutoffReason>) -> Verdict {
    if phase == Phase::Planned {
        Verdict::MayStart
    } else {
        Verdict::Ended(stop_reason(reason))
    }
}

fn stop_reason(reason: Option<ShutoffReason>) -> StopReason {
    match reason {
        Some(ShutoffReason::Shutdown) => StopReason::Shutdown,
        Some(ShutoffReason::Destroyed) => StopReason::Destroyed,
        Some(ShutoffReason::Migrated) => StopReason::Migrated,
        // A guest that ran and whose QEMU could not be reached any more has lost its QEMU.
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
    use libvirt::DomainState as Seen;

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
    fn a_guest_that_may_have_run_is_never_started_again() {
        let seen = REASONS.map(|reason| Some(Seen::Shutoff(reason)));
        for seen in seen.into_iter().chain([None]) {
            for phase in [Phase::Resuming, Phase::Started] {
                let verdict = judge(phase, seen);
                assert!(
                    matches!(verdict, Verdict::Ended(_)),
                    "{phase:?} {seen:?} {verdict:?}"
                );
            }
            let ended = judge(Phase::Ended(StopReason::Shutdown), seen);
            assert_eq!(ended, Verdict::Ended(StopReason::Shutdown));
        }
    }

    #[test]
    fn a_start_that_was_cut_off_is_repeated_whatever_is_left_of_it() {
        let shutoff = REASONS.map(|reason| Some(Seen::Shutoff(reason)));
        let alive = [
            Some(Seen::Paused(PausedReason::User)),
            Some(Seen::Running),
            None,
        ];
        for seen in shutoff.into_iter().chain(alive) {
            assert_eq!(judge(Phase::Starting, seen), Verdict::MayStart, "{seen:?}");
        }
    }

    #[test]
    fn the_states_of_a_living_guest_keep_their_cause() {
        let check = |seen, expected| {
            for phase in [Phase::Planned, Phase::Resuming, Phase::Started] {
                assert_eq!(
                    judge(phase, Some(seen)),
                    Verdict::Alive(expected),
                    "{seen:?}"
                );
            }
        };
        check(Seen::Running, DomainState::Running);
        check(Seen::Paused(PausedReason::User), DomainState::PausedByUser);
        check(
            Seen::Paused(PausedReason::IoError),
            DomainState::PausedByIoError,
        );
        check(
            Seen::Paused(PausedReason::Migration),
            DomainState::PausedOther,
        );
    }

    #[test]
    fn the_cause_of_an_end_reaches_the_handler() {
        let check = |reason, expected| {
            let verdict = judge(Phase::Started, Some(Seen::Shutoff(reason)));
            assert_eq!(verdict, Verdict::Ended(expected), "{reason:?}");
        };
        check(ShutoffReason::Shutdown, StopReason::Shutdown);
        check(ShutoffReason::Destroyed, StopReason::Destroyed);
        check(ShutoffReason::Crashed, StopReason::Crashed);
        check(ShutoffReason::Failed, StopReason::Crashed);
        assert_eq!(
            judge(Phase::Started, Some(Seen::Crashed)),
            Verdict::Ended(StopReason::Panicked)
        );
    }
}
