//! Pure planning: maps an observed guest to the steps of one reconcile.

use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::{
    VirtualMachineInstance, annotations, vmi_status::VirtualMachineInstancePhase as Phase,
};
use launcher_channel::DomainState;

use super::{interfaces, plugged};
use crate::launcher::Link;

/// The input of the plan, built once per reconcile.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Observed<'a> {
    pub(crate) vmi: &'a VirtualMachineInstance,
    /// All processes of the pod have ended.
    pub(crate) pod_ended: bool,
    pub(crate) link: &'a Link,
    /// How long the launcher has been unreachable.
    pub(crate) disconnected_for: Option<Duration>,
    /// The last sync of the guest by this process.
    pub(crate) synced: Option<Synced>,
    /// The guest has come from another pod, which has given it up, and its launcher has not resumed it yet.
    pub(crate) awaits_take_over: bool,
    /// The guest lacks processors or memory for which its pod was made.
    pub(crate) has_other_size: bool,
    /// Interfaces are to come or to go.
    pub(crate) has_other_interfaces: bool,
    pub(crate) now: Timestamp,
}

/// What a sync was based on: if that changes, the guest is synced again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Synced {
    /// The number of the connection.
    pub(crate) connection: u64,
    pub(crate) agent_probes_paused: bool,
}

/// The closed set of actions. Steps are executed in order; each is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Have the launcher resume a guest that has come from another pod.
    TakeOver,
    /// Prepare the pod and start its guest, or adopt a running one.
    Start,
    /// Bring volumes to the running guest, and take others away.
    Plug,
    /// Bring interfaces to the running guest, and take others away.
    PlugInterfaces,
    /// Have the launcher plug processors and memory into the running guest.
    Resize,
    /// Have the launcher set links of the running guest up or down.
    SetLinks,
    /// Ask the guest to power off; destroy it after the grace period.
    Shutdown { grace: Duration },
    /// Write the VMI's status if it differs.
    Report,
    /// Destroy the guest of a VMI in a final phase.
    Destroy,
    /// Fail the VMI: its launcher is unreachable and the guest's state unknown.
    FailUnresponsive,
    /// The final phase is recorded: the launcher may end.
    Release,
}

/// The grace period of a VMI that does not set one.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// A launcher that is unreachable for longer will not return: process 1 of its pod restarts it within
/// ten seconds.
pub(crate) const LAUNCHER_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn plan(observed: &Observed<'_>) -> Vec<Step> {
    let connected = observed.link.peer.is_some();
    let domain = observed.link.state.as_ref().and_then(|state| state.domain);
    let deleted = observed.vmi.metadata.deletion_timestamp.is_some();
    let synced = observed.synced
        == Some(Synced {
            connection: observed.link.connection,
            agent_probes_paused: pauses_agent_probes(observed.vmi),
        });
    if is_final(observed.vmi) {
        return match domain {
            _ if !connected => vec![],
            Some(DomainState::Stopped(_)) | None => vec![Step::Release],
            Some(_) => vec![Step::Destroy],
        };
    }
    match domain {
        Some(DomainState::Stopped(_)) => vec![Step::Report],
        None if awaits_launcher(observed) && has_timed_out(observed) => {
            vec![Step::FailUnresponsive]
        }
        _ if observed.pod_ended || !connected => vec![],
        // Its launcher accepts nothing else before.
        _ if observed.awaits_take_over => vec![Step::TakeOver],
        None if deleted => vec![Step::Report],
        Some(_) if deleted => vec![shutdown(observed)],
        _ => {
            let changes = domain.is_some() && takes_changes(observed.vmi);
            let state = observed.link.state.as_ref();
            let links = state.filter(|_| changes).map(|state| &state.links);
            let steps = [
                (!synced).then_some(Step::Start),
                (changes && plugged::is_concerned(observed.vmi)).then_some(Step::Plug),
                (changes && observed.has_other_interfaces).then_some(Step::PlugInterfaces),
                (changes && observed.has_other_size).then_some(Step::Resize),
                Some(Step::Report),
                // Last, so that a refusal keeps nothing else waiting.
                links
                    .is_some_and(|links| interfaces::has_other_links(observed.vmi, links))
                    .then_some(Step::SetLinks),
            ];
            steps.into_iter().flatten().collect()
        }
    }
}

/// Whether the guest runs and can be changed: not while it moves to another pod.
fn takes_changes(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    let migration = status.and_then(|status| status.migration_state.as_ref());
    let is_migrating =
        migration.is_some_and(|state| state.completed != Some(true) && state.failed != Some(true));
    phase(vmi) == Phase::Running && !is_migrating
}

/// Whether the VMI was handed over, but its launcher has not reported yet whether the guest runs.
pub(crate) fn awaits_launcher(observed: &Observed<'_>) -> bool {
    let unknown = observed
        .link
        .state
        .as_ref()
        .is_none_or(|state| state.domain.is_none());
    phase(observed.vmi) == Phase::Scheduled
        && !observed.pod_ended
        && observed.link.peer.is_none()
        && unknown
}

fn has_timed_out(observed: &Observed<'_>) -> bool {
    let time = observed.disconnected_for;
    time.is_some_and(|time| time >= LAUNCHER_TIMEOUT)
}

/// Shutdown with the rest of the grace period, counted from the deletion.
fn shutdown(observed: &Observed<'_>) -> Step {
    let grace = grace_seconds(observed.vmi);
    let since = observed
        .vmi
        .metadata
        .deletion_timestamp
        .as_ref()
        .map_or(0, |deleted| {
            (observed.now.as_second() - deleted.0.as_second()).max(0)
        });
    // `deletionTimestamp` is the end of the API server's grace period, not its start; the two are
    // equal because VMIs are deleted with a grace period of zero.
    let left = u64::try_from(grace - since).unwrap_or(0);
    Step::Shutdown {
        grace: Duration::from_secs(left),
    }
}

/// Whether pings of the guest agent succeed without asking it.
pub(crate) fn pauses_agent_probes(vmi: &VirtualMachineInstance) -> bool {
    annotations::is_true(&vmi.metadata, annotations::PAUSE_GUEST_AGENT_PROBES)
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
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kubevirt_api::vmi_status::VirtualMachineInstanceStatus;
    use launcher_channel::{GuestState, InterfaceLink, StopReason};

    use super::*;
    use crate::launcher::Peer;

    fn vmi(phase: Phase) -> VirtualMachineInstance {
        VirtualMachineInstance {
            status: Some(VirtualMachineInstanceStatus {
                phase: Some(phase),
                ..VirtualMachineInstanceStatus::default()
            }),
            ..VirtualMachineInstance::default()
        }
    }

    fn disconnected(domain: Option<DomainState>) -> Link {
        Link {
            state: Some(GuestState {
                domain,
                ..GuestState::default()
            }),
            ..Link::default()
        }
    }

    /// The link of a running guest.
    fn running() -> Link {
        Link {
            peer: Some(Arc::new(Peer::this_process())),
            ..disconnected(Some(DomainState::Running))
        }
    }

    /// A VMI whose guest moves.
    fn moving(mut vmi: VirtualMachineInstance) -> VirtualMachineInstance {
        let state = serde_json::json!({"migrationUid": "m"});
        let state = serde_json::from_value(state).unwrap();
        vmi.status.as_mut().unwrap().migration_state = Some(state);
        vmi
    }

    /// A guest that was not synced yet, with nothing to change.
    fn observed<'a>(vmi: &'a VirtualMachineInstance, link: &'a Link) -> Observed<'a> {
        Observed {
            vmi,
            pod_ended: false,
            link,
            disconnected_for: None,
            synced: None,
            awaits_take_over: false,
            has_other_size: false,
            has_other_interfaces: false,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    /// A guest that was synced over this link, with nothing to change.
    fn synced<'a>(vmi: &'a VirtualMachineInstance, link: &'a Link) -> Observed<'a> {
        Observed {
            synced: Some(Synced {
                connection: link.connection,
                agent_probes_paused: false,
            }),
            ..observed(vmi, link)
        }
    }

    #[test]
    fn unreachable_launcher_fails_the_vmi_unless_its_guest_may_run() {
        let long = Some(LAUNCHER_TIMEOUT);
        let short = Some(LAUNCHER_TIMEOUT.saturating_sub(Duration::from_millis(1)));
        let running = Some(DomainState::Running);
        let stopped = Some(DomainState::Stopped(StopReason::Crashed));
        for (phase, domain, disconnected_for, pod_ended, expected) in [
            (
                Phase::Scheduled,
                None,
                long,
                false,
                vec![Step::FailUnresponsive],
            ),
            (Phase::Scheduled, None, short, false, vec![]),
            (Phase::Scheduled, None, long, true, vec![]),
            // virt-controller has not handed it over.
            (Phase::Scheduling, None, long, false, vec![]),
            (Phase::Scheduled, running, long, false, vec![]),
            (Phase::Running, running, long, false, vec![]),
            (Phase::Running, None, long, false, vec![]),
            (Phase::Running, stopped, long, false, vec![Step::Report]),
            (Phase::Failed, running, long, false, vec![]),
        ] {
            let steps = plan(&Observed {
                pod_ended,
                disconnected_for,
                ..observed(&vmi(phase.clone()), &disconnected(domain))
            });
            assert_eq!(
                steps, expected,
                "{phase:?} {domain:?} {disconnected_for:?} {pod_ended}"
            );
        }
    }

    #[test]
    fn volumes_come_and_go_while_the_guest_runs() {
        let plugged = |phase: Phase| {
            let status = serde_json::json!({
                "phase": phase, "volumeStatus": [{"name": "v", "hotplugVolume": {}}],
            });
            let mut vmi = vmi(phase);
            vmi.status = Some(serde_json::from_value(status).unwrap());
            vmi
        };
        let moving = moving(plugged(Phase::Running));
        for (vmi, is_synced, expected) in [
            (
                Box::new(plugged(Phase::Running)),
                true,
                vec![Step::Plug, Step::Report],
            ),
            (
                Box::new(plugged(Phase::Running)),
                false,
                vec![Step::Start, Step::Plug, Step::Report],
            ),
            (
                Box::new(plugged(Phase::Scheduled)),
                true,
                vec![Step::Report],
            ),
            (Box::new(vmi(Phase::Running)), true, vec![Step::Report]),
            (Box::new(moving), true, vec![Step::Report]),
        ] {
            let link = running();
            let observed = if is_synced {
                synced(&vmi, &link)
            } else {
                observed(&vmi, &link)
            };
            assert_eq!(plan(&observed), expected, "{vmi:?} {is_synced}");
        }
    }

    #[test]
    fn interfaces_come_and_go_while_the_guest_runs_and_does_not_move() {
        let moving = moving(vmi(Phase::Running));
        let report = [Step::Report];
        let both = [Step::PlugInterfaces, Step::Report];
        for (vmi, has_other_interfaces, expected) in [
            (&vmi(Phase::Running), false, &report[..]),
            (&vmi(Phase::Running), true, &both),
            (&vmi(Phase::Scheduled), true, &report),
            (&moving, true, &report),
        ] {
            let steps = plan(&Observed {
                has_other_interfaces,
                ..synced(vmi, &running())
            });
            assert_eq!(steps, expected, "{vmi:?} {has_other_interfaces}");
        }
    }

    #[test]
    fn link_is_set_while_the_guest_runs_and_does_not_move() {
        let with_link = |phase: Phase| {
            let mut vmi = vmi(phase);
            let interface = serde_json::json!({"name": "n", "bridge": {}, "state": "down"});
            let interface = serde_json::from_value(interface).unwrap();
            vmi.spec.domain.devices.interfaces = vec![interface];
            vmi
        };
        let moving = moving(with_link(Phase::Running));
        let (up, down) = (InterfaceLink::Up, InterfaceLink::Down);
        let report = [Step::Report];
        let check =
            |vmi: &VirtualMachineInstance, link: Option<InterfaceLink>, expected: &[Step]| {
                let mut link_to = running();
                let links = link.map(|link| ("n".to_owned(), link));
                link_to.state.as_mut().unwrap().links = links.into_iter().collect();
                let steps = plan(&synced(vmi, &link_to));
                assert_eq!(steps, expected, "{vmi:?} {link:?}");
            };
        let running = with_link(Phase::Running);
        check(&running, Some(up), &[Step::Report, Step::SetLinks]);
        check(&running, Some(down), &report);
        check(&running, None, &report);
        check(&with_link(Phase::Scheduled), Some(up), &report);
        check(&moving, Some(up), &report);
    }

    #[test]
    fn guest_is_resized_while_it_runs_and_does_not_move() {
        let moving = moving(vmi(Phase::Running));
        for (vmi, has_other_size, expected) in [
            (&vmi(Phase::Running), false, vec![Step::Report]),
            (&vmi(Phase::Running), true, vec![Step::Resize, Step::Report]),
            (&vmi(Phase::Scheduled), true, vec![Step::Report]),
            (&moving, true, vec![Step::Report]),
        ] {
            let steps = plan(&Observed {
                has_other_size,
                ..synced(vmi, &running())
            });
            assert_eq!(steps, expected, "{vmi:?} {has_other_size}");
        }
    }

    #[test]
    fn guest_that_was_given_up_is_taken_over_before_anything_else() {
        let peer = Arc::new(Peer::this_process());
        let paused = Some(DomainState::PausedOther);
        let lost = Some(DomainState::Stopped(StopReason::Crashed));
        for (phase, deleted, domain, connected, expected) in [
            (Phase::Running, false, paused, true, vec![Step::TakeOver]),
            (Phase::Running, true, paused, true, vec![Step::TakeOver]),
            // In post-copy it may not count as one before.
            (Phase::Running, false, None, true, vec![Step::TakeOver]),
            (Phase::Running, false, paused, false, vec![]),
            (Phase::Running, false, lost, true, vec![Step::Report]),
            // The guest of a VMI that has ended must not run again.
            (Phase::Failed, false, paused, true, vec![Step::Destroy]),
        ] {
            let mut vmi = vmi(phase.clone());
            if deleted {
                vmi.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            }
            let link = Link {
                peer: connected.then(|| Arc::clone(&peer)),
                ..disconnected(domain)
            };
            let steps = plan(&Observed {
                awaits_take_over: true,
                ..observed(&vmi, &link)
            });
            assert_eq!(
                steps, expected,
                "{phase:?} {deleted} {domain:?} {connected}"
            );
        }
    }

    #[test]
    fn running_guest_is_synced_again_when_its_probes_are_paused_or_resumed() {
        let synced = |connection, agent_probes_paused| {
            Some(Synced {
                connection,
                agent_probes_paused,
            })
        };
        let sync = vec![Step::Start, Step::Report];
        for (annotation, synced, expected) in [
            (None, synced(1, false), vec![Step::Report]),
            (Some("true"), synced(1, false), sync.clone()),
            (Some("T"), synced(1, true), vec![Step::Report]),
            (Some("no"), synced(1, true), sync.clone()),
            (None, synced(1, true), sync.clone()),
            (Some("true"), synced(2, true), sync.clone()),
            (None, None, sync),
        ] {
            let mut vmi = vmi(Phase::Running);
            vmi.metadata.annotations = annotation.map(|value| {
                [(
                    annotations::PAUSE_GUEST_AGENT_PROBES.to_owned(),
                    value.to_owned(),
                )]
                .into()
            });
            let link = Link {
                connection: 1,
                ..running()
            };
            let steps = plan(&Observed {
                synced,
                ..observed(&vmi, &link)
            });
            assert_eq!(steps, expected, "{annotation:?} {synced:?}");
        }
    }
}
