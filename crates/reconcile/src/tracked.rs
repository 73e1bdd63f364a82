//! Tracks which reconciled objects depend on which objects of another kind, by name.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Resource;
use parking_lot::Mutex;

use crate::{Key, Store};

/// A store that records the dependents of each object, so that a change triggers just those.
/// Clones share the record; it is bounded by the number of dependents.
#[derive(Debug)]
pub struct Tracked<K> {
    store: Store<K>,
    /// Object, whether it exists or not, to the keys that depend on it.
    dependents: Arc<Mutex<HashMap<Key, BTreeSet<Key>>>>,
}

impl<K: Resource> Tracked<K> {
    pub fn new(store: Store<K>) -> Self {
        Self {
            store,
            dependents: Arc::default(),
        }
    }

    /// The object of that name, if it exists; its next change triggers `dependent`.
    pub fn get(&self, name: &Key, dependent: &Key) -> Option<Arc<K>> {
        // Recorded first, so that a change between the two is not missed.
        let mut dependents = self.dependents.lock();
        dependents
            .entry(name.clone())
            .or_default()
            .insert(dependent.clone());
        drop(dependents);
        self.store.get(name)
    }

    /// See [`Store::is_defined`].
    pub fn is_defined(&self) -> bool {
        self.store.is_defined()
    }

    /// Takes the keys to reconcile because this object changed. Each is returned once;
    /// [`Self::get`] records it again.
    pub fn changed(&self, name: &Key) -> BTreeSet<Key> {
        self.dependents.lock().remove(name).unwrap_or_default()
    }
}

impl<K> Clone for Tracked<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            dependents: Arc::clone(&self.dependents),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn change_triggers_dependents_once_even_of_a_missing_object() {
        let tracked = Tracked::new(Store::<ConfigMap>::new());
        let (name, a, b) = (Key::new("n", "x"), Key::new("n", "a"), Key::new("n", "b"));
        assert!(tracked.get(&name, &a).is_none());
        assert!(tracked.get(&name, &b).is_none());
        assert_eq!(tracked.changed(&Key::new("n", "y")), BTreeSet::new());
        assert_eq!(tracked.changed(&name), BTreeSet::from([a.clone(), b]));
        assert_eq!(tracked.changed(&name), BTreeSet::new());
        assert!(tracked.get(&name, &a).is_none());
        assert_eq!(tracked.changed(&name), BTreeSet::from([a]));
    }
}
