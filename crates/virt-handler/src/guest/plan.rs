//! What to do about one guest: a pure decision over everything observed.

use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::{VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase};
use launcher_channel::DomainState;

use crate::launcher::Link;

/// All the plan may look at: built once per pass, never changed.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) vmi: &'a VirtualMachineInstance,
    /// The pod has ended: no process of it is left.
    pub(crate) pod_ended: bool,
    pub(crate) link: &'a Link,
    /// For how long nobody has answered.
    pub(crate) silent: Option<Duration>,
    /// The connection over which the guest was last synced by this process.
    pub(crate) synced_over: Option<u64>,
    pub(crate) now: Timestamp,
}

/// All that may be done. Steps are carried out in order; each may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Prepare the pod and have the guest run, or adopt it.
    Start,
    /// Have the guest power off; destroy it when that time is over.
    Shutdown { grace: Duration },
    /// Write what is known to the VMI, where it differs.
    Report,
    /// The instance is over and its guest is not.
    Destroy,
    /// Nothing is known of the guest and nobody answers: it is given up.
    GiveUp,
    /// The end is recorded: the launcher may go.
    Release,
}

/// Grace of a VMI that says nothing.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// A launcher that is away for longer does not come back: process 1 of its pod starts it again
/// within ten seconds.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

pub(crate) fn plan(seen: &Observed<'_>) -> Vec<Step> {
    let connected = seen.link.peer.is_some();
    let domain = seen.link.state.as_ref().and_then(|state| state.domain);
    let deleted = seen.vmi.metadata.deletion_timestamp.is_some();
    let synced = seen.synced_over == Some(seen.link.connection);
    if is_final(seen.vmi) {
        return match domain {
            _ if !connected => vec![],
            Some(DomainState::Stopped(_)) | None => vec![Step::Release],
            Some(_) => vec![Step::Destroy],
        };
    }
    match domain {
        Some(DomainState::Stopped(_)) => vec![Step::Report],
        None if awaits_launcher(seen) && seen.silent.is_some_and(|silent| silent >= SILENCE) => {
            vec![Step::GiveUp]
        }
        _ if seen.pod_ended || !connected => vec![],
        None if deleted => vec![Step::Report],
        Some(_) if deleted => vec![shutdown(seen)],
        _ if synced => vec![Step::Report],
        _ => vec![Step::Start, Step::Report],
    }
}

/// The guest was handed over, and whether it runs is not known: its launcher should have said.
pub(crate) fn awaits_launcher(seen: &Observed<'_>) -> bool {
    let unknown = seen
        .link
        .state
        .as_ref()
        .is_none_or(|state| state.domain.is_none());
    phase(seen.vmi) == Phase::Scheduled && !seen.pod_ended && seen.link.peer.is_none() && unknown
}

/// The time left of the grace period, counted from the deletion.
fn shutdown(seen: &Observed<'_>) -> Step {
    let grace = grace_seconds(seen.vmi);
    let since = seen
        .vmi
        .metadata
        .deletion_timestamp
        .as_ref()
        .map_or(0, |deleted| {
            (seen.now.as_second() - deleted.0.as_second()).max(0)
        });
    // The API server notes the moment at which the grace is over, not at which it began; the two
    // are the same here because VMIs are deleted without a grace of their own.
    let left = u64::try_from(grace - since).unwrap_or(0);
    Step::Shutdown {
        grace: Duration::from_secs(left),
    }
}

pub(crate) fn grace_seconds(vmi: &VirtualMachineInstance) -> i64 {
    vmi.spec
        .termination_grace_period_seconds
        .unwrap_or(DEFAULT_GRACE_SECONDS)
}

pub(crate) fn is_final(vmi: &VirtualMachineInstance) -> bool {
    matches!(phase(vmi), Phase::Succeeded | Phase::Failed)
}

pub(crate) fn phase(vmi: &VirtualMachineInstance) -> Phase {
    vmi.status
        .as_ref()
        .and_then(|status| status.phase.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kubevirt_api::vmi_status::VirtualMachineInstanceStatus;
    use launcher_channel::{GuestState, StopReason};

    use super::*;

    fn vmi(phase: Phase) -> VirtualMachineInstance {
        VirtualMachineInstance {
            status: Some(VirtualMachineInstanceStatus {
                phase: Some(phase),
                ..VirtualMachineInstanceStatus::default()
            }),
            ..VirtualMachineInstance::default()
        }
    }

    fn away(domain: Option<DomainState>) -> Link {
        Link {
            state: Some(GuestState {
                domain,
                ..GuestState::default()
            }),
            ..Link::default()
        }
    }

    #[test]
    fn a_launcher_that_is_silent_for_long_is_given_up_unless_its_guest_may_live() {
        let long = Some(SILENCE);
        let short = Some(SILENCE.saturating_sub(Duration::from_millis(1)));
        let running = Some(DomainState::Running);
        let stopped = Some(DomainState::Stopped(StopReason::Crashed));
        for (phase, domain, silent, pod_ended, expected) in [
            (Phase::Scheduled, None, long, false, vec![Step::GiveUp]),
            (Phase::Scheduled, None, short, false, vec![]),
            (Phase::Scheduled, None, long, true, vec![]),
            // The controller has not handed it over.
            (Phase::Scheduling, None, long, false, vec![]),
            (Phase::Scheduled, running, long, false, vec![]),
            (Phase::Running, running, long, false, vec![]),
            (Phase::Running, None, long, false, vec![]),
            (Phase::Running, stopped, long, false, vec![Step::Report]),
            (Phase::Failed, running, long, false, vec![]),
        ] {
            let steps = plan(&Observed {
                vmi: &vmi(phase.clone()),
                pod_ended,
                link: &away(domain),
                silent,
                synced_over: None,
                now: Timestamp::UNIX_EPOCH,
            });
            assert_eq!(
                steps, expected,
                "{phase:?} {domain:?} {silent:?} {pod_ended}"
            );
        }
    }
}
