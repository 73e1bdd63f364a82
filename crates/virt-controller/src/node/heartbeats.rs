//! The last heartbeat of virt-handler on each node.
//!
//! A heartbeat contains the node's time. Clocks differ, so its age is measured by our own clock from
//! the moment it changed. The age of a heartbeat that predates this process is only known from its
//! own time: that may shorten the wait, but always leaves a living node time for the next heartbeat.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::view::Host;

/// A node without a new heartbeat for this long is lost.
pub(crate) const SILENCE: SignedDuration = SignedDuration::from_mins(5);
/// Heartbeats come every minute or a little later: a living node sends one within this time.
const MIN_WAIT: SignedDuration = SignedDuration::from_mins(3);

#[derive(Debug, Clone, Default)]
pub(crate) struct Heartbeats(Arc<Mutex<BTreeMap<String, Heartbeat>>>);

#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    /// The time that the node wrote; `None` if virt-handler never reported.
    time: Option<Timestamp>,
    /// By our clock: when the heartbeat changed, or at most its own time when first observed.
    at: Timestamp,
}

impl Heartbeats {
    /// Records the heartbeat of a node.
    pub(crate) fn note(&self, host: &Host, now: Timestamp) {
        let name = host.metadata.name.clone().unwrap_or_default();
        let mut all = self.0.lock();
        let time = host.heartbeat;
        let at = match all.get(&name) {
            Some(before) if before.time == time => return,
            Some(_) => now,
            None => {
                let earliest = now.saturating_add(MIN_WAIT.saturating_sub(SILENCE));
                time.unwrap_or(now).min(now).max(earliest.unwrap_or(now))
            }
        };
        all.insert(name, Heartbeat { time, at });
    }

    pub(crate) fn forget(&self, node: &str) {
        self.0.lock().remove(node);
    }

    /// Whether the node is lost. A missing node is; a node where virt-handler never ran is not.
    pub(crate) fn is_lost(&self, node: &str, now: Timestamp) -> bool {
        self.lost_in(node, now) == Some(Duration::ZERO)
    }

    /// How long until the node is lost without a new heartbeat; `None` if it never will be.
    pub(crate) fn lost_in(&self, node: &str, now: Timestamp) -> Option<Duration> {
        let Some(beat) = self.0.lock().get(node).copied() else {
            return Some(Duration::ZERO);
        };
        beat.time?;
        let left = SILENCE.saturating_sub(now.duration_since(beat.at));
        Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn host(heartbeat: Option<i64>) -> Host {
        let mut host = Host::default();
        host.metadata.name = Some("n".to_owned());
        host.heartbeat = heartbeat.map(at);
        host
    }

    #[test]
    fn nodes_are_lost_after_five_minutes_by_our_own_clock() {
        let all = Heartbeats::default();
        assert!(all.is_lost("n", at(0)), "no such node");
        all.note(&host(None), at(0));
        assert!(!all.is_lost("n", at(9999)), "virt-handler never ran");
        // The node's clock is an hour behind.
        all.note(&host(Some(-3600)), at(0));
        assert_eq!(all.lost_in("n", at(60)), Some(Duration::from_mins(4)));
        all.note(&host(Some(-3600)), at(60));
        assert!(all.is_lost("n", at(300)));
        all.note(&host(Some(-3300)), at(300));
        assert!(!all.is_lost("n", at(599)));
        all.forget("n");
        assert!(all.is_lost("n", at(599)));
    }

    #[test]
    fn first_observed_heartbeat_is_as_old_as_its_time_but_never_lost_at_once() {
        for (time, left) in [(-9999, 180), (-301, 180), (-10, 290), (3600, 300)] {
            let all = Heartbeats::default();
            all.note(&host(Some(time)), at(0));
            let left = Duration::from_secs(left);
            assert_eq!(all.lost_in("n", at(0)), Some(left), "{time}");
        }
    }
}
