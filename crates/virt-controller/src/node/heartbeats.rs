//! When each node's agent was last heard.
//!
//! The time in a heartbeat is the node's. Clocks differ, so what counts is for how long it has not
//! changed by our own clock. Of a heartbeat that was there before us nothing but its own time is
//! known: that may shorten the wait, but never so far that a living node is not heard first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::view::Host;

/// A node whose agent is silent for so long is taken for lost.
pub(crate) const SILENCE: SignedDuration = SignedDuration::from_mins(5);
/// Heartbeats come every minute or a little later: within this, a living node is heard.
const LISTENING: SignedDuration = SignedDuration::from_mins(3);

#[derive(Debug, Clone, Default)]
pub(crate) struct Heartbeats(Arc<Mutex<BTreeMap<String, Heard>>>);

#[derive(Debug, Clone, Copy)]
struct Heard {
    /// What the node wrote; `None` where no agent ever reported.
    said: Option<Timestamp>,
    /// By our clock: when that changed, or at most the time in it when we found it so.
    at: Timestamp,
}

impl Heartbeats {
    /// Takes in the state of a node.
    pub(crate) fn note(&self, host: &Host, now: Timestamp) {
        let name = host.metadata.name.clone().unwrap_or_default();
        let mut all = self.0.lock();
        let said = host.heartbeat;
        let at = match all.get(&name) {
            Some(before) if before.said == said => return,
            Some(_) => now,
            None => {
                let earliest = now.saturating_add(LISTENING.saturating_sub(SILENCE));
                said.unwrap_or(now).min(now).max(earliest.unwrap_or(now))
            }
        };
        all.insert(name, Heard { said, at });
    }

    pub(crate) fn forget(&self, node: &str) {
        self.0.lock().remove(node);
    }

    /// Whether nothing has been heard for too long. So it is with a node that does not exist; not
    /// with one that never had an agent.
    pub(crate) fn is_lost(&self, node: &str, now: Timestamp) -> bool {
        self.lost_in(node, now) == Some(Duration::ZERO)
    }

    /// How long until the node is lost if nothing is heard; `None` if it never will be.
    pub(crate) fn lost_in(&self, node: &str, now: Timestamp) -> Option<Duration> {
        let Some(heard) = self.0.lock().get(node).copied() else {
            return Some(Duration::ZERO);
        };
        heard.said?;
        let left = SILENCE.saturating_sub(now.duration_since(heard.at));
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
        assert!(!all.is_lost("n", at(9999)), "never had an agent");
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
    fn a_heartbeat_found_at_the_start_is_as_old_as_it_says_but_its_node_is_listened_to() {
        for (said, left) in [(-9999, 180), (-301, 180), (-10, 290), (3600, 300)] {
            let all = Heartbeats::default();
            all.note(&host(Some(said)), at(0));
            let left = Duration::from_secs(left);
            assert_eq!(all.lost_in("n", at(0)), Some(left), "{said}");
        }
    }
}
