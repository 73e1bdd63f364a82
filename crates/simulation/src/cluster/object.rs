//! Objects, changes and writes of the simulated API server.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Kind, http};

/// A change, in order of revisions.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) id: Id,
    pub(crate) event_type: EventType,
    pub(crate) object: Arc<Value>,
    /// The object as watches send it, serialised once for all of them.
    pub(super) text: Arc<OnceLock<String>>,
}

impl Change {
    pub(super) fn text(&self) -> &str {
        self.text
            .get_or_init(|| http::without_managed_fields(&self.object).to_string())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Id {
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// A change to an object.
#[derive(Debug, Clone)]
pub(crate) enum Patch {
    Merge(Value),
    /// Forced server-side apply.
    Apply(Value),
}

/// The writer and the part that it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Author<'a> {
    pub(crate) manager: &'a str,
    /// `status`, or empty.
    pub(crate) subresource: &'a str,
}

impl<'a> Author<'a> {
    /// A writer of the main resource.
    pub(crate) fn main(manager: &'a str) -> Self {
        Self {
            manager,
            subresource: "",
        }
    }

    /// A writer of the subresource `status`.
    pub(crate) fn status(manager: &'a str) -> Self {
        Self {
            manager,
            subresource: "status",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Deletion {
    /// Only the object of that UID.
    pub(crate) uid: Option<String>,
    /// Only the object at that revision.
    pub(crate) version: Option<String>,
    /// Sent by a controller, which may delete only VMIs that have an owner.
    pub(crate) is_by_controller: bool,
    pub(crate) propagation: Propagation,
    /// Without a grace period.
    pub(crate) is_now: bool,
}
