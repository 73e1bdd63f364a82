//! The objects of one kind, as a watch last saw them.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use kube::{Resource, ResourceExt as _};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::Key;

/// Objects by key, and by the UID of their controlling owner. Clones share the content.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    content: RwLock<Content<K>>,
    ready: watch::Sender<bool>,
}

struct Content<K> {
    objects: HashMap<Key, Arc<K>>,
    /// Owner's UID to the keys it controls.
    controlled: HashMap<String, BTreeSet<Key>>,
}

impl<K: Resource> Store<K> {
    #[expect(
        clippy::new_without_default,
        reason = "a store without a watch is no default"
    )]
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                content: RwLock::new(Content {
                    objects: HashMap::new(),
                    controlled: HashMap::new(),
                }),
                ready: watch::Sender::new(false),
            }),
        }
    }

    /// Waits until the first list is in.
    pub async fn ready(&self) {
        let mut ready = self.inner.ready.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _seen = ready.wait_for(|ready| *ready).await.is_ok();
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

    /// What an owner of that UID controls, by name.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let content = self.inner.content.read();
        let keys = content.controlled.get(uid).into_iter().flatten();
        keys.filter_map(|key| content.objects.get(key))
            .map(Arc::clone)
            .collect()
    }

    /// Puts in what one of our own writes answered, if the store still holds the version that the
    /// write was based on: the next pass then does not have to wait for the watch to see it.
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

    /// Replaces everything by a fresh list; answers what is gone.
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
        self.inner.ready.send_replace(true);
        gone
    }
}

impl<K: Resource> Content<K> {
    fn put(&mut self, key: Key, object: K) -> Option<Arc<K>> {
        let before = self.remove(&key);
        if let Some(owner) = controller_uid(&object) {
            self.controlled
                .entry(owner)
                .or_default()
                .insert(key.clone());
        }
        self.objects.insert(key, Arc::new(object));
        before
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let object = self.objects.remove(key)?;
        if let Some(owner) = controller_uid(object.as_ref())
            && let Some(keys) = self.controlled.get_mut(&owner)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.controlled.remove(&owner);
            }
        }
        Some(object)
    }
}

fn controller_uid(object: &impl Resource) -> Option<String> {
    let owners = object.meta().owner_references.iter().flatten();
    owners
        .into_iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.clone())
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
