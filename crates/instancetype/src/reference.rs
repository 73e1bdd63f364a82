//! References of a VM to its instance type and preference, and the content of their revisions.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kubevirt_api::{
    instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype},
    preference::{VirtualMachineClusterPreference, VirtualMachinePreference},
    vm::{InstancetypeMatcher, PreferenceMatcher},
    vm_status::InstancetypeStatusRef,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The two kinds of objects that a VM chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Instancetype,
    Preference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespace,
    Cluster,
}

/// A reference to an instance type or a preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub family: Family,
    pub scope: Scope,
    pub name: String,
    /// The `ControllerRevision` to use instead of the current object.
    pub revision: Option<String>,
}

/// Why the content of a revision cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it contains {found:?}, not a {expected}")]
    OtherKind {
        found: String,
        expected: &'static str,
    },
    #[error("it is malformed: {0}")]
    Malformed(String),
}

impl Family {
    /// Path of the matcher, as violations report it.
    pub fn path(self) -> &'static str {
        match self {
            Self::Instancetype => "spec.instancetype",
            Self::Preference => "spec.preference",
        }
    }

    /// The kind of this family in a scope.
    pub fn kind(self, scope: Scope) -> &'static str {
        match (self, scope) {
            (Self::Instancetype, Scope::Namespace) => VirtualMachineInstancetype::KIND,
            (Self::Instancetype, Scope::Cluster) => VirtualMachineClusterInstancetype::KIND,
            (Self::Preference, Scope::Namespace) => VirtualMachinePreference::KIND,
            (Self::Preference, Scope::Cluster) => VirtualMachineClusterPreference::KIND,
        }
    }

    /// The scope of a kind as users write it: singular or plural in any case; empty means cluster.
    pub fn scope(self, kind: &str) -> Option<Scope> {
        if kind.is_empty() {
            return Some(Scope::Cluster);
        }
        let kind = kind.to_ascii_lowercase();
        let singular = kind.strip_suffix('s').unwrap_or(&kind);
        [Scope::Namespace, Scope::Cluster]
            .into_iter()
            .find(|scope| self.kind(*scope).eq_ignore_ascii_case(singular))
    }
}

impl Reference {
    pub fn kind(&self) -> &'static str {
        self.family.kind(self.scope)
    }

    pub fn plural(&self) -> &'static str {
        match (self.family, self.scope) {
            (Family::Instancetype, Scope::Namespace) => VirtualMachineInstancetype::PLURAL,
            (Family::Instancetype, Scope::Cluster) => VirtualMachineClusterInstancetype::PLURAL,
            (Family::Preference, Scope::Namespace) => VirtualMachinePreference::PLURAL,
            (Family::Preference, Scope::Cluster) => VirtualMachineClusterPreference::PLURAL,
        }
    }
}

/// The instance type of a VM, from its spec and its status.
pub fn instancetype(
    matcher: Option<&InstancetypeMatcher>,
    status: Option<&InstancetypeStatusRef>,
) -> Option<Reference> {
    let matcher = matcher?;
    let written = Written {
        name: matcher.name.as_deref().unwrap_or_default(),
        kind: matcher.kind.as_deref().unwrap_or_default(),
        revision: matcher.revision_name.as_deref().unwrap_or_default(),
    };
    written.reference(Family::Instancetype, status)
}

/// The preference of a VM, from its spec and its status.
pub fn preference(
    matcher: Option<&PreferenceMatcher>,
    status: Option<&InstancetypeStatusRef>,
) -> Option<Reference> {
    let matcher = matcher?;
    let written = Written {
        name: matcher.name.as_deref().unwrap_or_default(),
        kind: matcher.kind.as_deref().unwrap_or_default(),
        revision: matcher.revision_name.as_deref().unwrap_or_default(),
    };
    written.reference(Family::Preference, status)
}

/// The common fields of both kinds of matcher.
struct Written<'a> {
    name: &'a str,
    kind: &'a str,
    revision: &'a str,
}

impl Written<'_> {
    fn reference(
        &self,
        family: Family,
        status: Option<&InstancetypeStatusRef>,
    ) -> Option<Reference> {
        if self.name.is_empty() {
            return None;
        }
        let scope = family.scope(self.kind)?;
        let own = Some(self.revision).filter(|name| !name.is_empty());
        let recorded = status.and_then(|status| self.recorded(family, scope, status));
        Some(Reference {
            family,
            scope,
            name: self.name.to_owned(),
            revision: own.or(recorded).map(str::to_owned),
        })
    }

    /// The revision in the status, unless it belongs to a former choice.
    fn recorded<'s>(
        &self,
        family: Family,
        scope: Scope,
        status: &'s InstancetypeStatusRef,
    ) -> Option<&'s str> {
        let of_name = status.name.as_deref() == Some(self.name);
        let kind = status.kind.as_deref().unwrap_or_default();
        let revision = status.controller_revision_ref.as_ref()?.name.as_deref()?;
        (of_name && family.scope(kind) == Some(scope) && !revision.is_empty()).then_some(revision)
    }
}

/// The spec in a revision: part of a whole object or, in the oldest format, base64 text.
pub fn spec_of_revision<T: DeserializeOwned>(
    data: &Value,
    reference: &Reference,
) -> Result<T, Unreadable> {
    let kind = data["kind"].as_str().unwrap_or_default();
    if !kind.is_empty() && reference.family.scope(kind).is_none() {
        return Err(Unreadable::OtherKind {
            found: kind.to_owned(),
            expected: reference.kind(),
        });
    }
    let malformed = |error: &dyn std::fmt::Display| Unreadable::Malformed(error.to_string());
    match &data["spec"] {
        Value::String(text) => {
            let bytes = STANDARD.decode(text).map_err(|error| malformed(&error))?;
            serde_json::from_slice(&bytes).map_err(|error| malformed(&error))
        }
        Value::Null => Err(malformed(&"it has no spec")),
        spec => serde_json::from_value(spec.clone()).map_err(|error| malformed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use kubevirt_api::instancetype::VirtualMachineInstancetypeSpec;
    use serde_json::json;

    use super::*;

    fn read(matcher: Value, status: Value) -> Option<Reference> {
        let matcher = serde_json::from_value(matcher).expect("a matcher");
        let status = serde_json::from_value(status).expect("a status");
        instancetype(Some(&matcher), Some(&status))
    }

    #[test]
    fn kind_is_recognized_in_singular_and_plural_and_any_case() {
        for (kind, scope) in [
            ("", Some(Scope::Cluster)),
            ("VirtualMachineInstancetype", Some(Scope::Namespace)),
            ("virtualmachineinstancetypes", Some(Scope::Namespace)),
            ("virtualMachineClusterInstancetype", Some(Scope::Cluster)),
            ("VIRTUALMACHINECLUSTERINSTANCETYPES", Some(Scope::Cluster)),
            ("VirtualMachinePreference", None),
        ] {
            assert_eq!(Family::Instancetype.scope(kind), scope, "{kind}");
        }
        let plural = Family::Preference.scope("virtualmachineclusterpreferences");
        assert_eq!(plural, Some(Scope::Cluster));
    }

    #[test]
    fn revision_of_the_spec_precedes_that_of_the_status() {
        let status = json!({
            "name": "small", "kind": "virtualmachineclusterinstancetype",
            "controllerRevisionRef": { "name": "recorded" },
        });
        let revision = |matcher| read(matcher, status.clone()).expect("a reference").revision;
        assert_eq!(
            revision(json!({ "name": "small", "revisionName": "own" })).as_deref(),
            Some("own")
        );
        assert_eq!(
            revision(json!({ "name": "small" })).as_deref(),
            Some("recorded")
        );
        assert_eq!(revision(json!({ "name": "large" })), None);
        let other = json!({ "name": "small", "kind": "VirtualMachineInstancetype" });
        assert_eq!(revision(other), None);
        assert_eq!(read(json!({ "inferFromVolume": "root" }), json!({})), None);
    }

    #[test]
    fn all_revision_formats_are_read_and_other_objects_refused() {
        let reference = read(json!({ "name": "small" }), json!({})).expect("a reference");
        let spec = json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } });
        let text = STANDARD.encode(spec.to_string());
        for data in [
            json!({ "kind": "VirtualMachineClusterInstancetype", "spec": spec }),
            json!({ "apiVersion": "instancetype.kubevirt.io/v1alpha1", "spec": text }),
        ] {
            let read: VirtualMachineInstancetypeSpec =
                spec_of_revision(&data, &reference).expect("reads");
            assert_eq!(read.cpu.guest, 2);
        }
        for data in [
            json!({ "kind": "StatefulSet", "spec": {} }),
            json!({ "kind": "VirtualMachinePreference", "spec": {} }),
            json!({}),
            json!({ "spec": "?" }),
        ] {
            let read = spec_of_revision::<VirtualMachineInstancetypeSpec>(&data, &reference);
            assert!(read.is_err(), "{data}");
        }
    }
}
