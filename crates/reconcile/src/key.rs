//! The name of a namespaced object.

use std::fmt;

use kube::Resource;

/// Namespace and name; the kind is clear from the context.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an object from the API server; a missing part is empty.
    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }

    /// The key of the controlling owner, if the owner is of that kind.
    pub fn of_controller(object: &impl Resource, kind: &str) -> Option<Self> {
        let meta = object.meta();
        let owner = meta
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true) && owner.kind == kind)?;
        Some(Self::new(
            meta.namespace.clone().unwrap_or_default(),
            owner.name.clone(),
        ))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
