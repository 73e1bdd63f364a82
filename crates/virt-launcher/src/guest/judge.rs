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
    /// libvirt was asked to start it and the answer was not noted yet.
    Starting,
    /// It has run.
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
    if let Phase::Ended(reason) = phase {
        return Verdict::Ended(reason);
    }
    match seen {
        Some(Seen::Running | Seen::Blocked | Seen::ShuttingDown) => {
            Verdict::Alive(DomainState::Running)
        }
        Some(Seen::Paused(PausedReason::User)) => Verdict::Alive(DomainState::PausedByUser),
        Some(Seen::Paused(PausedReason::IoError)) => Verdict::Alive(DomainState::PausedByIoError),
        Some(Seen::Paused(_) | Seen::Suspended | Seen::NoState | Seen::Unknown(_)) => {
            Verdict::Alive(DomainState::PausedOther)
        }
        Some(Seen::Crashed) => Verdict::Ended(StopReason::Panicked),
        Some(Seen::Shutoff(reason)) => not_running(phase, Some(reason)),
        None => not_running(phase, None),
    }
}

/// A start that is not known to have succeeded may be repeated only if libvirt does not say that
/// the guest ran.
fn not_running(phase: Phase, reason: Option<ShutoffReason>) -> Verdict {
    use ShutoffReason::{Daemon, Failed, Unknown};
    match (phase, reason) {
        (Phase::Planned, _) | (Phase::Starting, None | Some(Unknown | Failed | Daemon)) => {
            Verdict::MayStart
        }
        (_, reason) => Verdict::Ended(stop_reason(reason)),
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
        Some(ShutoffReason::Unknown | ShutoffReason::Saved | ShutoffReason::FromSnapshot)
        | None => StopReason::Unknown,
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
    fn a_guest_that_has_run_is_never_started_again() {
        let seen = REASONS
            .into_iter()
            .map(|reason| Some(Seen::Shutoff(reason)))
            .chain([None]);
        for seen in seen {
            let started = judge(Phase::Started, seen);
            assert!(matches!(started, Verdict::Ended(_)), "{seen:?} {started:?}");
            let ended = judge(Phase::Ended(StopReason::Shutdown), seen);
            assert_eq!(ended, Verdict::Ended(StopReason::Shutdown));
        }
    }

    #[test]
    fn a_start_that_was_cut_off_is_repeated_only_if_the_guest_did_not_run() {
        for reason in REASONS {
            use ShutoffReason::{Daemon, Failed, Unknown};
            let verdict = judge(Phase::Starting, Some(Seen::Shutoff(reason)));
            let may_start = matches!(reason, Unknown | Failed | Daemon);
            assert_eq!(
                verdict == Verdict::MayStart,
                may_start,
                "{reason:?} {verdict:?}"
            );
        }
        assert_eq!(judge(Phase::Starting, None), Verdict::MayStart);
    }

    #[test]
    fn the_states_of_a_living_guest_keep_their_cause() {
        let check = |seen, expected| {
            for phase in [Phase::Planned, Phase::Starting, Phase::Started] {
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
