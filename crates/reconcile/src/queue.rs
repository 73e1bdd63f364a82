//! The work queue: which object is reconciled when, and what triggered it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Key;

/// A reconcile that asks to be repeated later than this is repeated then: waits follow from times that users
/// write, and a clock cannot hold every sum.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// Why an object is reconciled: the first trigger since its last reconcile, and how many there
/// were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger {
    /// A watched kind in lower case, such as `pod`, or one of the names below.
    pub name: &'static str,
    pub count: u32,
}

impl Trigger {
    /// A reconcile asked to be repeated after a time.
    pub(crate) const TIMER: Self = Self::new("timer");
    /// The last reconcile failed.
    pub(crate) const RETRY: Self = Self::new("retry");

    const fn new(name: &'static str) -> Self {
        Self { name, count: 1 }
    }

    /// The earlier trigger keeps its name.
    fn merge(&mut self, later: Self) {
        self.count = self.count.saturating_add(later.count);
    }
}

/// The sending end of a work queue. Bounded by the number of objects: triggers of one object are
/// merged.
#[derive(Debug, Clone, Default)]
pub struct Triggers {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// In order, so that the same history gives the same reconciles.
    keys: Mutex<BTreeMap<Key, Trigger>>,
    added: Notify,
}

impl Triggers {
    pub fn new() -> Self {
        Self::default()
    }

    /// Has the object reconciled. `trigger` names what asks for it, for the logs: the kind of the
    /// watched object that changed, in lower case, or a timer.
    pub fn add(&self, key: Key, trigger: &'static str) {
        let trigger = Trigger::new(trigger);
        let mut keys = self.shared.keys.lock();
        if let Some(earlier) = keys.get_mut(&key) {
            earlier.merge(trigger);
            return;
        }
        keys.insert(key, trigger);
        drop(keys);
        self.shared.added.notify_one();
    }

    pub(crate) async fn added(&self) {
        self.shared.added.notified().await;
    }

    pub(crate) fn take(&self) -> BTreeMap<Key, Trigger> {
        std::mem::take(&mut self.shared.keys.lock())
    }
}

/// Which object is reconciled when, and which are being reconciled. A key waits at most once.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// In order of time; the number keeps equal times apart and in order.
    pending: BTreeMap<Slot, Key>,
    waiting: HashMap<Key, (Slot, Trigger)>,
    running: HashSet<Key>,
    /// Triggered while running.
    again: HashMap<Key, Trigger>,
    number: u64,
}

type Slot = (Instant, u64);

/// An object that is to be reconciled now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) key: Key,
    pub(crate) trigger: Trigger,
    /// Since the time at which it was to be reconciled.
    pub(crate) waited: Duration,
}

impl Queue {
    /// An earlier time wins, and its trigger with it.
    pub(crate) fn add(&mut self, key: Key, at: Instant, trigger: Trigger) {
        if self.running.contains(&key) {
            self.again
                .entry(key)
                .and_modify(|earlier| earlier.merge(trigger))
                .or_insert(trigger);
            return;
        }
        if let Some((slot, earlier)) = self.waiting.get_mut(&key) {
            if slot.0 <= at {
                earlier.merge(trigger);
                return;
            }
            self.pending.remove(slot);
        }
        self.number += 1;
        let slot = (at, self.number);
        self.pending.insert(slot, key.clone());
        self.waiting.insert(key, (slot, trigger));
    }

    /// When the next object is to be reconciled.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.pending.keys().next().map(|(at, _)| *at)
    }

    /// How many objects wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn start_next(&mut self, now: Instant) -> Option<Started> {
        if self.next_at()? > now {
            return None;
        }
        let ((at, _), key) = self.pending.pop_first()?;
        let (_, trigger) = self.waiting.remove(&key)?;
        self.running.insert(key.clone());
        Some(Started {
            key,
            trigger,
            waited: now.saturating_duration_since(at),
        })
    }

    pub(crate) fn finish(&mut self, key: Key, again_in: Option<(Duration, Trigger)>) {
        self.running.remove(&key);
        let now = Instant::now();
        if let Some(trigger) = self.again.remove(&key) {
            self.add(key, now, trigger);
        } else if let Some((wait, trigger)) = again_in {
            self.add(key, now + wait.min(LONGEST_WAIT), trigger);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: Trigger = Trigger::new("pod");
    const NODE: Trigger = Trigger::new("node");

    fn start_next(queue: &mut Queue, now: Instant) -> Option<(Key, Trigger)> {
        let started = queue.start_next(now)?;
        Some((started.key, started.trigger))
    }

    #[test]
    fn key_triggered_while_running_runs_once_more_and_never_beside_itself() {
        let mut queue = Queue::default();
        let (key, now) = (Key::new("n", "a"), Instant::now());
        queue.add(key.clone(), now, POD);
        queue.add(key.clone(), now, NODE);
        let merged = Trigger {
            name: "pod",
            count: 2,
        };
        assert_eq!(start_next(&mut queue, now), Some((key.clone(), merged)));
        assert_eq!(start_next(&mut queue, now), None);
        queue.add(key.clone(), now, NODE);
        assert_eq!(start_next(&mut queue, now), None);
        let later = Some((Duration::from_mins(1), Trigger::TIMER));
        queue.finish(key.clone(), later);
        assert_eq!(
            start_next(&mut queue, Instant::now()),
            Some((key.clone(), NODE))
        );
        queue.finish(key.clone(), None);
        assert_eq!(queue.next_at(), None);
    }

    #[test]
    fn wait_of_any_length_is_a_time() {
        let mut queue = Queue::default();
        let (key, now) = (Key::new("n", "a"), Instant::now());
        queue.add(key.clone(), now, POD);
        assert!(start_next(&mut queue, now).is_some());
        queue.finish(key, Some((Duration::MAX, Trigger::TIMER)));
        let at = queue.next_at().expect("it is repeated");
        assert!(at >= now + LONGEST_WAIT);
    }

    #[test]
    fn earlier_time_wins() {
        let mut queue = Queue::default();
        let (key, now) = (Key::new("n", "a"), Instant::now());
        queue.add(key.clone(), now + Duration::from_secs(9), Trigger::TIMER);
        queue.add(key.clone(), now + Duration::from_secs(3), POD);
        queue.add(key.clone(), now + Duration::from_secs(5), NODE);
        let at = now + Duration::from_secs(3);
        assert_eq!(queue.next_at(), Some(at));
        assert_eq!(queue.pending.len(), 1);
        let merged = Trigger {
            name: "pod",
            count: 2,
        };
        assert_eq!(start_next(&mut queue, at), Some((key, merged)));
    }

    #[test]
    fn triggers_of_one_object_are_merged() {
        let triggers = Triggers::new();
        let key = Key::new("n", "a");
        triggers.add(key.clone(), "node");
        triggers.add(key.clone(), "pod");
        let merged = Trigger {
            name: "node",
            count: 2,
        };
        assert_eq!(triggers.take(), BTreeMap::from([(key, merged)]));
        assert!(triggers.take().is_empty());
    }
}
