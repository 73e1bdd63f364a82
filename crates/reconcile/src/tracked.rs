//! Objects that reconciles of another kind look at by name: who looked at which.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Resource;
use parking_lot::Mutex;

use crate::{Key, Store};

/// A store that remembers who asked for what, so that a change wakes just those. Clones share
/// the memory; it is bounded by what is looked at.
#[derive(Debug)]
pub struct Tracked<K> {
    store: Store<K>,
    /// Object to those who looked at it, there or not.
    looked: Arc<Mutex<HashMap<Key, BTreeSet<Key>>>>,
}

impl<K: Resource> Tracked<K> {
    pub fn new(store: Store<K>) -> Self {
        Self {
            store,
            looked: Arc::default(),
        }
    }

    /// The object of that name, if it is there; `who` is told of its next change.
    pub fn look(&self, name: &Key, who: &Key) -> Option<Arc<K>> {
        // Noted first: a change between the two is then told.
        let mut looked = self.looked.lock();
        looked.entry(name.clone()).or_default().insert(who.clone());
        drop(looked);
        self.store.get(name)
    }

    /// As [`Store::is_defined`].
    pub fn is_defined(&self) -> bool {
        self.store.is_defined()
    }

    /// Who is to look again because this object changed. They are told once; looking again
    /// notes them again.
    pub fn changed(&self, name: &Key) -> BTreeSet<Key> {
        self.looked.lock().remove(name).unwrap_or_default()
    }
}

impl<K> Clone for Tracked<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            looked: Arc::clone(&self.looked),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn a_change_wakes_once_whoever_looked_even_at_nothing() {
        let tracked = Tracked::new(Store::<ConfigMap>::new());
        let (name, a, b) = (Key::new("n", "x"), Key::new("n", "a"), Key::new("n", "b"));
        assert!(tracked.look(&name, &a).is_none());
        assert!(tracked.look(&name, &b).is_none());
        assert_eq!(tracked.changed(&Key::new("n", "y")), BTreeSet::new());
        assert_eq!(tracked.changed(&name), BTreeSet::from([a.clone(), b]));
        assert_eq!(tracked.changed(&name), BTreeSet::new());
        assert!(tracked.look(&name, &a).is_none());
        assert_eq!(tracked.changed(&name), BTreeSet::from([a]));
    }
}
