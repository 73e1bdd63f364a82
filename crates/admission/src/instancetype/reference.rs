//! Which instance type or preference a VM means, and what a revision of one holds.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kubevirt_api::{
    instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype},
    preference::{VirtualMachineClusterPreference, VirtualMachinePreference},
    vm::{InstancetypeMatcher, PreferenceMatcher},
    vm_status::InstancetypeStatusRef,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What is chosen.
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

/// Points at an instance type or a preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub family: Family,
    pub scope: Scope,
    pub name: String,
    /// What counts instead of the object as it is now.
    pub revision: Option<String>,
}

/// The content of a revision is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it holds {found:?}, not a {wanted}")]
    OtherKind { found: String, wanted: &'static str },
    #[error("it cannot be read: {0}")]
    Malformed(String),
}

impl Family {
    /// Where violations say the matcher is.
    pub fn path(self) -> &'static str {
        match self {
            Self::Instancetype => "spec.instancetype",
            Self::Preference => "spec.preference",
        }
    }

    /// The kind of that scope.
    pub fn kind(self, scope: Scope) -> &'static str {
        match (self, scope) {
            (Self::Instancetype, Scope::Namespace) => VirtualMachineInstancetype::KIND,
            (Self::Instancetype, Scope::Cluster) => VirtualMachineClusterInstancetype::KIND,
            (Self::Preference, Scope::Namespace) => VirtualMachinePreference::KIND,
            (Self::Preference, Scope::Cluster) => VirtualMachineClusterPreference::KIND,
        }
    }

    /// What a word for a kind means: singular or plural in any case; none means the cluster's.
    pub fn scope(self, kind: &str) -> Option<Scope> {
        if kind.is_empty() {
            return Some(Scope::Cluster);
        }
        let word = kind.to_ascii_lowercase();
        let word = word.strip_suffix('s').unwrap_or(&word);
        [Scope::Namespace, Scope::Cluster]
            .into_iter()
            .find(|scope| self.kind(*scope).eq_ignore_ascii_case(word))
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

/// What both kinds of matcher say.
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
        let noted = status.and_then(|status| self.noted(family, scope, status));
        Some(Reference {
            family,
            scope,
            name: self.name.to_owned(),
            revision: own.or(noted).map(str::to_owned),
        })
    }

    /// The revision in the status, unless it is of what was chosen before.
    fn noted<'s>(
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

/// The spec that a revision holds: the whole object, or, in the oldest ones, the spec's text.
pub fn spec_of_revision<T: DeserializeOwned>(
    data: &Value,
    reference: &Reference,
) -> Result<T, Unreadable> {
    let kind = data["kind"].as_str().unwrap_or_default();
    if !kind.is_empty() && reference.family.scope(kind).is_none() {
        return Err(Unreadable::OtherKind {
            found: kind.to_owned(),
            wanted: reference.kind(),
        });
    }
    let malformed = |error: &dyn std::fmt::Display| Unreadable::Malformed(error.to_string());
    match &data["spec"] {
        Value::String(text) => {
            let bytes = STANDARD.decode(text).map_err(|error| malformed(&error))?;
            serde_json::from_slice(&bytes).map_err(|error| malformed(&error))
        }
        Value::Null => Err(malformed(&"there is no spec in it")),
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
    fn kinds_are_known_by_every_word_for_them() {
        for (word, scope) in [
            ("", Some(Scope::Cluster)),
            ("VirtualMachineInstancetype", Some(Scope::Namespace)),
            ("virtualmachineinstancetypes", Some(Scope::Namespace)),
            ("virtualMachineClusterInstancetype", Some(Scope::Cluster)),
            ("VIRTUALMACHINECLUSTERINSTANCETYPES", Some(Scope::Cluster)),
            ("VirtualMachinePreference", None),
        ] {
            assert_eq!(Family::Instancetype.scope(word), scope, "{word}");
        }
        let plural = Family::Preference.scope("virtualmachineclusterpreferences");
        assert_eq!(plural, Some(Scope::Cluster));
    }

    #[test]
    fn revision_is_that_of_the_spec_else_that_of_the_status_while_the_name_is_the_same() {
        let status = json!({
            "name": "small", "kind": "virtualmachineclusterinstancetype",
            "controllerRevisionRef": { "name": "noted" },
        });
        let revision = |matcher| read(matcher, status.clone()).expect("a reference").revision;
        assert_eq!(
            revision(json!({ "name": "small", "revisionName": "own" })).as_deref(),
            Some("own")
        );
        assert_eq!(
            revision(json!({ "name": "small" })).as_deref(),
            Some("noted")
        );
        assert_eq!(revision(json!({ "name": "large" })), None);
        let other = json!({ "name": "small", "kind": "VirtualMachineInstancetype" });
        assert_eq!(revision(other), None);
        assert_eq!(read(json!({ "inferFromVolume": "root" }), json!({})), None);
    }

    #[test]
    fn revisions_of_every_age_are_read_and_others_told_apart() {
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
