//! The objects of one kind, as a watch last observed them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::{Resource, ResourceExt as _};
use parking_lot::RwLock;
use tokio::sync::SetOnce;

use crate::Key;

/// In place of the UID of a controlling owner.
const NO_OWNER: &str = "";

/// Objects by key, and by the UID of their controlling owner. Clones share the content.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    content: RwLock<Content<K>>,
    /// Wakes waiting tasks in their order of arrival, so that runs are reproducible.
    ready: SetOnce<()>,
    is_defined: AtomicBool,
}

struct Content<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Owner's UID to the keys it controls.
    controlled: BTreeMap<String, BTreeSet<Key>>,
}

impl<K: Resource> Store<K> {
    #[expect(
        clippy::new_without_default,
        reason = "a store without a watch is not a sensible default"
    )]
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                content: RwLock::new(Content {
                    objects: BTreeMap::new(),
                    controlled: BTreeMap::new(),
                }),
                ready: SetOnce::new(),
                is_defined: AtomicBool::new(true),
            }),
        }
    }

    /// Waits for the first list.
    pub async fn ready(&self) {
        self.inner.ready.wait().await;
    }

    /// Whether the cluster defines the kind. False only for stores of [`crate::watch_if_defined`].
    pub fn is_defined(&self) -> bool {
        self.inner.is_defined.load(Ordering::Acquire)
    }

    pub(crate) fn set_defined(&self, is_defined: bool) {
        self.inner.is_defined.store(is_defined, Ordering::Release);
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.inner.content.read().objects.get(key).map(Arc::clone)
    }

    pub fn list(&self) -> Vec<Arc<K>> {
        self.inner
            .content
            .read()
            .objects
            .values()
            .map(Arc::clone)
            .collect()
    }

    pub fn keys(&self) -> Vec<Key> {
        self.inner.content.read().objects.keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.inner.content.read().objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects of one namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let content = self.inner.content.read();
        let from = content.objects.range(Key::new(namespace, "")..);
        from.take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Objects without a controlling owner, by name.
    pub fn uncontrolled(&self) -> Vec<Arc<K>> {
        self.controlled_by(NO_OWNER)
    }

    /// Objects whose controlling owner has that UID, by name.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let content = self.inner.content.read();
        let keys = content.controlled.get(uid).into_iter().flatten();
        keys.filter_map(|key| content.objects.get(key))
            .map(Arc::clone)
            .collect()
    }

    /// Stores the response to one of our own writes, if the store still holds the version that the
    /// write was based on: the next reconcile then does not have to wait for the watch.
    pub fn wrote(&self, base: &K, mut written: K) {
        written.meta_mut().managed_fields = None;
        let key = Key::of(&written);
        let mut content = self.inner.content.write();
        let current = content
            .objects
            .get(&key)
            .and_then(|object| object.resource_version());
        if current.is_some() && current == base.resource_version() {
            content.put(key, written);
        }
    }

    pub(crate) fn put(&self, object: K) -> Option<Arc<K>> {
        self.inner.content.write().put(Key::of(&object), object)
    }

    pub(crate) fn remove(&self, key: &Key) -> Option<Arc<K>> {
        self.inner.content.write().remove(key)
    }

    /// Replaces all objects by a fresh list; returns those that are gone.
    pub(crate) fn replace(&self, objects: Vec<K>) -> Vec<Arc<K>> {
        let fresh: BTreeSet<Key> = objects.iter().map(Key::of).collect();
        let mut content = self.inner.content.write();
        let stale: Vec<Key> = content
            .objects
            .keys()
            .filter(|key| !fresh.contains(*key))
            .cloned()
            .collect();
        let gone = stale.iter().filter_map(|key| content.remove(key)).collect();
        for object in objects {
            content.put(Key::of(&object), object);
        }
        drop(content);
        let _was_ready = self.inner.ready.set(()).is_err();
        gone
    }
}

impl<K: Resource> Content<K> {
    fn put(&mut self, key: Key, object: K) -> Option<Arc<K>> {
        let before = self.remove(&key);
        self.controlled
            .entry(controller_uid(&object))
            .or_default()
            .insert(key.clone());
        self.objects.insert(key, Arc::new(object));
        before
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let object = self.objects.remove(key)?;
        let owner = controller_uid(object.as_ref());
        if let Some(keys) = self.controlled.get_mut(&owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.controlled.remove(&owner);
            }
        }
        Some(object)
    }
}

fn controller_uid(object: &impl Resource) -> String {
    let owners = object.meta().owner_references.iter().flatten();
    let owner = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true));
    owner.map_or_else(|| NO_OWNER.to_owned(), |owner| owner.uid.clone())
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.inner.content.read().objects.len();
        f.debug_struct("Store").field("objects", &held).finish()
    }
}
