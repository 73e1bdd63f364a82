//! One served kind: the facts that discovery, `OpenAPI` and the router need.
//!
//! Invariant: a list of resources is ordered as clients see groups and versions, so the preferred
//! version of a group comes first.

use std::fmt;

use serde_json::Value;

/// A kind in one version of one group.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Discovery verbs: `create`, `delete`, `deletecollection`, `get`, `list`, `patch`, `update`,
    /// `watch`.
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    /// `OpenAPI` v3 schema of the whole object, with optional `$defs` or `definitions` for its
    /// `$ref`s. `Value::Null` if the kind has none.
    pub schema: Value,
    /// Whether the server takes strategic merge patches of this kind: of built-in kinds only.
    pub takes_strategic_patches: bool,
}

/// `status`, `scale`, `log`, ...
#[derive(Debug, Clone)]
pub struct Subresource {
    pub name: String,
    /// Kind of the body; the parent's kind for `status`.
    pub kind: String,
    /// `group/version` of the body's kind when it is not the parent's, as `autoscaling/v1`.
    pub api_version: Option<String>,
    pub verbs: Vec<String>,
}

impl Resource {
    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }

    pub fn group_resource(&self) -> GroupResource<'_> {
        GroupResource {
            group: &self.group,
            resource: &self.plural,
        }
    }

    pub fn group_kind(&self) -> GroupKind<'_> {
        GroupKind {
            group: &self.group,
            kind: &self.kind,
        }
    }
}

/// `v1` or `group/version`.
pub fn join_api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// `("", "v1")` or `("group", "version")`.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Prints as `virtualmachines.kubevirt.io`, or `pods` in the core group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupResource<'a> {
    pub group: &'a str,
    pub resource: &'a str,
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, self.resource, self.group)
    }
}

/// Prints as `VirtualMachine.kubevirt.io`, or `Pod` in the core group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupKind<'a> {
    pub group: &'a str,
    pub kind: &'a str,
}

impl fmt::Display for GroupKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, self.kind, self.group)
    }
}

fn dotted(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    f.write_str(name)?;
    if group.is_empty() {
        Ok(())
    } else {
        write!(f, ".{group}")
    }
}
