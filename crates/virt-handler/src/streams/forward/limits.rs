//! Limits on open connections: a user cannot take all descriptors of a node.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use reconcile::Key;

/// Of one guest; a browser opens a few dozen.
const PER_GUEST: usize = 128;
const PER_NODE: usize = 1024;

/// The open connections by guest.
#[derive(Debug, Default)]
pub(crate) struct OpenForwards {
    counts: Mutex<HashMap<Key, usize>>,
}

/// The registration of a connection, removed on drop.
#[derive(Debug)]
pub(in super::super) struct Slot {
    forwards: Arc<OpenForwards>,
    key: Key,
}

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum Full {
    #[error("the guest has {PER_GUEST} forwarded connections already: close some")]
    Guest,
    #[error("the node has {PER_NODE} forwarded connections already: try again later")]
    Node,
}

impl OpenForwards {
    pub(in super::super) fn acquire(self: &Arc<Self>, key: &Key) -> Result<Slot, Full> {
        let mut counts = self.counts.lock();
        if counts.get(key).is_some_and(|count| *count >= PER_GUEST) {
            return Err(Full::Guest);
        }
        if counts.values().sum::<usize>() >= PER_NODE {
            return Err(Full::Node);
        }
        *counts.entry(key.clone()).or_default() += 1;
        Ok(Slot {
            forwards: Arc::clone(self),
            key: key.clone(),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.forwards.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guest_cannot_take_the_connections_of_the_others() {
        let forwards = Arc::new(OpenForwards::default());
        let greedy = Key::new("default", "greedy");
        let mut slots: Vec<_> = (0..PER_GUEST)
            .map(|_| forwards.acquire(&greedy).unwrap())
            .collect();
        assert_eq!(forwards.acquire(&greedy).unwrap_err(), Full::Guest);
        drop(forwards.acquire(&Key::new("default", "other")).unwrap());
        slots.pop();
        drop(forwards.acquire(&greedy).unwrap());
        slots.clear();
        assert!(forwards.counts.lock().is_empty());
    }

    #[test]
    fn node_has_a_limit_too() {
        let forwards = Arc::new(OpenForwards::default());
        let key = |number: usize| Key::new("default", format!("vm{}", number / PER_GUEST));
        let _slots: Vec<_> = (0..PER_NODE)
            .map(|number| forwards.acquire(&key(number)).unwrap())
            .collect();
        let next = Key::new("default", "next");
        assert_eq!(forwards.acquire(&next).unwrap_err(), Full::Node);
    }
}
