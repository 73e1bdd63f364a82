//! The way into the queue of a controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::Resource;
use reconcile::{Key, Store, Triggers};

/// Trigger of all objects when this process becomes the leader.
const LEADER: &str = "leader";

/// Triggers that pass only while the controller runs: a process that waits to lead, for months
/// perhaps, would collect the keys of all objects that ever existed.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    triggers: Triggers,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    /// Lets triggers pass, and triggers all objects of the store: the last leader may have stopped
    /// at any point.
    pub(crate) fn open<K: Resource>(&self, store: &Store<K>) {
        self.is_open.store(true, Ordering::Release);
        self.add_all(store.keys(), LEADER);
    }

    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// The triggers behind the gate.
    pub(crate) fn triggers(&self) -> Triggers {
        self.triggers.clone()
    }

    pub(crate) fn add(&self, key: Key, trigger: &'static str) {
        if self.is_open.load(Ordering::Acquire) {
            self.triggers.add(key, trigger);
        }
    }

    pub(crate) fn add_all(&self, keys: impl IntoIterator<Item = Key>, trigger: &'static str) {
        keys.into_iter().for_each(|key| self.add(key, trigger));
    }
}
