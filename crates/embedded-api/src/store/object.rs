//! Stored objects, their keys, changes and lists.

use std::sync::Arc;

use apimachinery::GroupResource;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::StoreError;

/// All objects of one resource, regardless of the served version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Collection {
    pub group: Arc<str>,
    pub plural: Arc<str>,
}

impl Collection {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }

    pub(crate) fn resource(&self) -> GroupResource<'_> {
        GroupResource {
            group: &self.group,
            resource: &self.plural,
        }
    }

    pub(crate) fn key(&self, namespace: &str, name: &str) -> Key {
        Key {
            collection: self.clone(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// Identifies one object; the namespace is empty for cluster-scoped ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub collection: Collection,
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// An object as stored: JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub revision: u64,
    pub body: Bytes,
}

impl Stored {
    pub(crate) fn parse(&self) -> Result<Value, StoreError> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// The object with nothing but its metadata: most objects are much larger.
    pub(crate) fn parse_metadata(&self) -> Result<Value, StoreError> {
        Ok(metadata(&self.body)?)
    }
}

/// Parses an object with nothing but its metadata.
pub(crate) fn metadata(body: &[u8]) -> serde_json::Result<Value> {
    #[derive(Deserialize)]
    struct Partial {
        #[serde(default)]
        metadata: Value,
    }
    let Partial { metadata } = serde_json::from_slice(body)?;
    Ok([("metadata".to_owned(), metadata)].into_iter().collect())
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change, as sent to watchers.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub revision: u64,
    pub kind: EventKind,
    pub key: Key,
    /// The object after the change; for a deletion its final state, with the new revision.
    pub body: Bytes,
    /// The object before the change, if known.
    pub previous: Option<Bytes>,
}

impl Event {
    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, Bytes::len);
        self.body.len().saturating_add(previous)
    }
}

/// A change, as it goes to the watches of clients, which may read slowly.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    Change(Arc<Event>),
    /// A change of a large object: a watch reads it from the log when its client is ready.
    Large {
        revision: u64,
        key: Key,
    },
}

impl Notice {
    /// Larger changes would be kept in memory for the slowest client.
    const MAX_BYTES: usize = 64 << 10;

    pub(super) fn of(event: Arc<Event>) -> Self {
        if event.bytes() <= Self::MAX_BYTES {
            return Self::Change(event);
        }
        Self::Large {
            revision: event.revision,
            key: event.key.clone(),
        }
    }
}

/// Bounds in number and bytes. A chunk has at least one item, and ends with the one that reaches a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub count: usize,
    pub bytes: usize,
}

#[cfg(test)]
impl Bound {
    pub(crate) const ALL: Self = Self {
        count: usize::MAX,
        bytes: usize::MAX,
    };
}

/// The objects of a list.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub collection: Collection,
    /// None for all namespaces.
    pub namespace: Option<String>,
    /// None for all names.
    pub name: Option<String>,
}

impl Scope {
    pub(crate) fn all(collection: Collection) -> Self {
        Self {
            collection,
            namespace: None,
            name: None,
        }
    }

    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.collection == key.collection
            && self
                .namespace
                .as_deref()
                .is_none_or(|namespace| *namespace == *key.namespace)
            && self.name.as_deref().is_none_or(|name| *name == *key.name)
    }
}

/// A chunk of a list, ordered by namespace and name.
#[derive(Debug)]
pub(crate) struct Page {
    pub items: Vec<Stored>,
    /// The revision at which the page was read.
    pub revision: u64,
    /// The last object of a chunk that is not the last, and how many objects follow.
    pub more: Option<More>,
}

/// The rest of a list: where it starts, and its number of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct More {
    pub after: Position,
    pub remaining: u64,
}

/// The place of an object in the order of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub namespace: String,
    pub name: String,
}
