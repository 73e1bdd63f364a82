//! Interfaces that the guest gets and loses while it runs: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kubevirt_api::VirtualMachineInstance;
use launcher_channel::{GuestState, InterfaceLink};
use model::{Guest, LinkState, pod_interface_name};
use reasons::Reason;
use tokio::time::Instant;

use super::interfaces::Attached;

/// Until a failed or unfinished change is attempted again.
pub(super) const RETRY: Duration = Duration::from_secs(3);
/// A pod that has not joined a network for longer, and a guest that has not released an interface, probably will not.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What is to change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Interfaces that the guest lacks, and that its pod has.
    pub(super) attach: BTreeSet<String>,
    /// Interfaces that the guest lacks, and its pod as well.
    pub(super) wait: BTreeSet<String>,
    /// Interfaces that the guest is to lose.
    pub(super) remove: BTreeSet<String>,
    /// Interfaces that the guest has lost, and whose links in the pod go.
    pub(super) disconnect: BTreeSet<String>,
}

/// The results of the last changes, in this process alone: each pass looks again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nics {
    pub(super) failures: BTreeMap<String, Failure>,
    /// Interfaces whose networks the pod has not joined.
    pub(super) waits: BTreeSet<String>,
    /// Interfaces that the guest has lost, and whose links in the pod are gone.
    pub(super) disconnected: BTreeSet<String>,
    /// Since when each interface is to come or to go.
    pub(super) since: BTreeMap<String, Instant>,
    /// The last request, when, and over which connection.
    pub(super) requested: Option<(Change, Instant, u64)>,
    pub(super) retry_in: Option<Duration>,
}

/// Why an interface does not come or go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// What the guest is to get and to lose; nothing with a launcher of an earlier version.
pub(super) fn change(
    vmi: &VirtualMachineInstance,
    state: &GuestState,
    attached: &Attached,
) -> Change {
    let mut change = Change::default();
    let Some(live) = state.interfaces() else {
        return change;
    };
    let guest = Guest::of(vmi);
    for interface in guest.interfaces.iter().filter(|one| one.is_pluggable()) {
        let name = interface.name();
        let has_it = live.contains_key(name);
        let in_pod = attached.has(&pod_interface_name(name));
        let list = match (interface.link, has_it) {
            (LinkState::Absent, true) => &mut change.remove,
            (LinkState::Absent, false) => &mut change.disconnect,
            (_, true) => continue,
            (_, false) if in_pod => &mut change.attach,
            (_, false) => &mut change.wait,
        };
        list.insert(name.to_owned());
    }
    change
}

/// The interfaces that a running guest does not have yet, and whose networks its pod has not joined.
pub(super) fn left_out(
    vmi: &VirtualMachineInstance,
    state: Option<&GuestState>,
    attached: &Attached,
) -> BTreeSet<String> {
    state.map_or_else(BTreeSet::new, |state| change(vmi, state, attached).wait)
}

/// The interfaces that the VMI shows as those of the guest: one that it has lost counts until its links are gone. The pod
/// leaves the network after that, and the network plugin finds its interface by the name that it has then.
pub(super) fn shown(
    vmi: &VirtualMachineInstance,
    state: &GuestState,
    attached: &Attached,
    nics: Option<&Nics>,
) -> Option<BTreeMap<String, InterfaceLink>> {
    let mut shown = state.interfaces()?.clone();
    let Some(nics) = nics else {
        return Some(shown);
    };
    for name in change(vmi, state, attached).disconnect {
        if attached.has(&pod_interface_name(&name)) && !nics.disconnected.contains(&name) {
            shown.insert(name, InterfaceLink::Down);
        }
    }
    Some(shown)
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Nics {
    /// Notes what is to change, also while nothing can: a guest that moves for its networks does so until it has them.
    pub(super) fn note(&mut self, change: Change) {
        if change.is_empty() {
            *self = Self::default();
        } else {
            self.waits = change.wait;
        }
    }

    /// Notes how long each interface has been waiting, and fails what takes too long.
    pub(super) fn follow(&mut self, change: &Change, now: Instant) {
        self.waits.clone_from(&change.wait);
        let waits: BTreeSet<&String> = change.wait.union(&change.remove).collect();
        self.since.retain(|name, _| waits.contains(name));
        for name in waits {
            self.retry_in.get_or_insert(RETRY);
            let since = *self.since.entry(name.clone()).or_insert(now);
            if now.duration_since(since) < PATIENCE || self.failures.contains_key(name) {
                continue;
            }
            let seconds = PATIENCE.as_secs();
            let failure = if change.wait.contains(name) {
                Failure {
                    reason: Reason::InterfaceNotInPod,
                    message: format!(
                        "the pod has had no interface on network {name} for {seconds} s"
                    ),
                }
            } else {
                Failure {
                    reason: Reason::InterfaceNotReleased,
                    message: format!("the guest has not released interface {name} for {seconds} s"),
                }
            };
            self.failures.insert(name.clone(), failure);
        }
    }

    /// What the VMI shows: the first failure.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failures.values().next()
    }

    /// Whether the guest is to move to a pod that joins its networks from the start. `is_known` is the answer of before,
    /// which holds as long as a network is missing: another process has waited for it.
    pub(super) fn needs_move(&self, is_known: bool) -> bool {
        let mut failures = self.failures.values();
        let is_late = failures.any(|failure| failure.reason == Reason::InterfaceNotInPod);
        is_late || (is_known && !self.waits.is_empty())
    }

    /// Whether the same was requested a moment ago.
    pub(super) fn is_requested(&self, change: &Change, connection: u64, now: Instant) -> bool {
        self.requested.as_ref().is_some_and(|(last, at, over)| {
            *last == *change && *over == connection && now.duration_since(*at) < RETRY
        })
    }
}

pub(super) fn refused(message: &str) -> Failure {
    Failure {
        reason: Reason::InterfaceNotPlugged,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kubevirt_api::annotations;
    use launcher_channel::DomainState;
    use serde_json::json;

    use super::*;

    fn vmi(state: Option<&str>) -> VirtualMachineInstance {
        serde_json::from_value(json!({"spec": {
            "domain": {"devices": {"interfaces": [
                {"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}, "state": state},
            ]}},
            "networks": [
                {"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "n"}},
            ],
        }}))
        .unwrap()
    }

    fn attached(in_pod: bool) -> Attached {
        let lan = json!({"name": "ns/n", "interface": pod_interface_name("lan")});
        let all = if in_pod { json!([lan]) } else { json!([]) };
        let annotations = json!({annotations::CNI_NETWORK_STATUS: all.to_string()});
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
        Attached::of(&pod)
    }

    fn state(links: &[&str]) -> GuestState {
        let links = links
            .iter()
            .map(|name| ((*name).to_owned(), InterfaceLink::Up));
        GuestState {
            domain: Some(DomainState::Running),
            machine: Some("q35".to_owned()),
            takes_interfaces: true,
            links: links.collect(),
            ..GuestState::default()
        }
    }

    #[test]
    fn guest_gets_what_its_pod_has_and_loses_what_is_absent() {
        let both = ["default", "lan"];
        for (wanted, in_guest, in_pod, expected) in [
            (None, true, true, "{} {} {} {}"),
            (None, false, true, "{\"lan\"} {} {} {}"),
            (None, false, false, "{} {\"lan\"} {} {}"),
            // Its link is another matter.
            (Some("down"), true, true, "{} {} {} {}"),
            (Some("down"), false, true, "{\"lan\"} {} {} {}"),
            (Some("absent"), true, true, "{} {} {\"lan\"} {}"),
            (Some("absent"), true, false, "{} {} {\"lan\"} {}"),
            (Some("absent"), false, true, "{} {} {} {\"lan\"}"),
        ] {
            let links = if in_guest { &both[..] } else { &both[..1] };
            let found = change(&vmi(wanted), &state(links), &attached(in_pod));
            let Change {
                attach,
                wait,
                remove,
                disconnect,
            } = &found;
            let text = format!("{attach:?} {wait:?} {remove:?} {disconnect:?}");
            assert_eq!(text, expected, "{wanted:?} {in_guest} {in_pod}");
            let earlier = GuestState {
                takes_interfaces: false,
                ..state(links)
            };
            assert_eq!(
                change(&vmi(wanted), &earlier, &attached(in_pod)),
                Change::default()
            );
            let left_out = left_out(&vmi(wanted), Some(&state(links)), &attached(in_pod));
            assert_eq!(left_out, found.wait);
        }
        // The guest that is about to start needs all of them.
        let unstarted = GuestState {
            domain: None,
            ..state(&[])
        };
        assert!(left_out(&vmi(None), Some(&unstarted), &attached(false)).is_empty());
        assert!(left_out(&vmi(None), None, &attached(false)).is_empty());
    }

    #[test]
    fn guest_has_an_interface_until_its_links_are_gone() {
        let gone = Nics {
            disconnected: BTreeSet::from(["lan".to_owned()]),
            ..Nics::default()
        };
        let unknown = Nics::default();
        for (wanted, in_guest, in_pod, nics, expected) in [
            (Some("absent"), true, true, &unknown, true),
            (Some("absent"), false, true, &unknown, true),
            (Some("absent"), false, true, &gone, false),
            (Some("absent"), false, false, &unknown, false),
            (None, false, true, &unknown, false),
            (None, true, true, &unknown, true),
        ] {
            let state = state(if in_guest {
                &["default", "lan"][..]
            } else {
                &["default"]
            });
            let found = shown(&vmi(wanted), &state, &attached(in_pod), Some(nics));
            let has_it = found.is_some_and(|all| all.contains_key("lan"));
            assert_eq!(has_it, expected, "{wanted:?} {in_guest} {in_pod}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_long_has_a_reason() {
        let set = |name: &str| BTreeSet::from([name.to_owned()]);
        for (change, reason) in [
            (
                Change {
                    wait: set("lan"),
                    ..Change::default()
                },
                Reason::InterfaceNotInPod,
            ),
            (
                Change {
                    remove: set("lan"),
                    ..Change::default()
                },
                Reason::InterfaceNotReleased,
            ),
        ] {
            let mut nics = Nics::default();
            nics.follow(&change, Instant::now());
            assert_eq!(nics.failure(), None);
            assert_eq!(nics.retry_in, Some(RETRY));
            tokio::time::advance(PATIENCE).await;
            nics.follow(&change, Instant::now());
            assert_eq!(nics.failure().map(|failure| failure.reason), Some(reason));
            assert_eq!(nics.needs_move(false), reason == Reason::InterfaceNotInPod);
            let mut next = Nics {
                failures: BTreeMap::new(),
                ..nics
            };
            assert_eq!(next.needs_move(true), reason == Reason::InterfaceNotInPod);
            assert!(!next.needs_move(false));
            next.follow(&Change::default(), Instant::now());
            assert!(!next.needs_move(true));
            assert!(next.since.is_empty());
            // Another process while the guest moves.
            let mut other = Nics::default();
            other.note(change);
            assert_eq!(other.needs_move(true), reason == Reason::InterfaceNotInPod);
            assert!(!other.needs_move(false));
            other.note(Change::default());
            assert!(!other.needs_move(true));
        }
    }
}
