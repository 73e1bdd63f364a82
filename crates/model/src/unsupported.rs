//! What the API knows and this version cannot run yet: the one list for fields of a VMI. A change
//! that makes a feature work deletes its row here; nothing else needs to change.
//!
//! Such objects are valid: the webhooks accept them with a warning for each field, and the
//! controller creates no pod for them. On the node, [`Supported`] checks the same list once more
//! before anything is rendered.

mod fields;

use std::ops::Deref;

use kubevirt_api::{VirtualMachineInstance, network::InterfaceState};
use serde::Serialize;
use serde_json::Value;

use self::fields::{ARCHITECTURE, BINDING, LEAVE_OUT};
use crate::{Guest, Interface, Network};

pub use self::fields::{Condition, FIELDS, UnsupportedField, WITHOUT_EFFECT};

/// An occurrence of an unsupported field in an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {remedy}")]
pub struct Unsupported {
    /// Path from the root of the object, with indices.
    pub field: String,
    /// What to do instead.
    pub remedy: &'static str,
}

/// The unsupported fields in a VMI's spec; `path` is the path of the spec in the object.
pub fn in_spec(spec: &impl Serialize, path: &str) -> Vec<Unsupported> {
    // Serialization fails only for values that JSON cannot hold, which no request contains.
    let mut spec = serde_json::to_value(spec).unwrap_or_default();
    clear_absent_interfaces(&mut spec);
    occurrences(FIELDS, &spec, path)
}

/// The fields in a VMI's spec that change nothing, although the guest runs.
pub fn without_effect(spec: &impl Serialize, path: &str) -> Vec<Unsupported> {
    let spec = serde_json::to_value(spec).unwrap_or_default();
    occurrences(WITHOUT_EFFECT, &spec, path)
}

fn occurrences(rows: &[UnsupportedField], spec: &Value, path: &str) -> Vec<Unsupported> {
    let of_row = |row: &UnsupportedField| {
        let remedy = row.remedy;
        row.find(spec).into_iter().map(move |field| Unsupported {
            field: format!("{path}.{field}"),
            remedy,
        })
    };
    rows.iter().flat_map(of_row).collect()
}

/// Makes unplugged interfaces null, since nothing is rendered for them; the others keep their indices.
fn clear_absent_interfaces(spec: &mut Value) {
    let interfaces = spec.pointer_mut("/domain/devices/interfaces");
    for interface in interfaces
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if interface["state"] == InterfaceState::Absent.as_str() {
            *interface = Value::Null;
        }
    }
}

/// The unsupported fields of a VMI.
pub fn in_vmi(vmi: &VirtualMachineInstance) -> Vec<Unsupported> {
    in_spec(&vmi.spec, "spec")
}

/// All occurrences in one message, for the condition of a guest that does not start.
pub fn summary(all: &[Unsupported]) -> Option<String> {
    let all: Vec<String> = all.iter().map(Unsupported::to_string).collect();
    (!all.is_empty()).then(|| format!("this version cannot run it yet: {}", all.join("; ")))
}

impl Unsupported {
    /// Warning for the author of the object.
    pub fn warning(&self) -> String {
        format!("accepted, but this version cannot run it yet: {self}")
    }

    /// Warning for the author of an object with a field that changes nothing.
    pub fn notice(&self) -> String {
        format!("accepted, but it has no effect: {self}")
    }

    /// The binding of an interface.
    pub fn binding(interface: &Interface<'_>) -> Self {
        Self {
            field: interface.field(interface.binding.member()),
            remedy: BINDING,
        }
    }

    /// The kind of a network.
    pub fn network(name: &str, network: Network<'_>) -> Self {
        let member = network.member();
        Self {
            field: format!("spec.networks[{name}].{member}"),
            remedy: remedy(&format!("networks[*].{member}")),
        }
    }

    /// The machine's architecture.
    pub fn architecture() -> Self {
        Self {
            field: "spec.architecture".to_owned(),
            remedy: ARCHITECTURE,
        }
    }
}

fn remedy(path: &str) -> &'static str {
    let row = FIELDS.iter().find(|row| row.path == path);
    row.map_or(LEAVE_OUT, |row| row.remedy)
}

/// A guest that uses nothing of the list.
#[derive(Debug, Clone)]
pub struct Supported<'a>(Guest<'a>);

impl<'a> Supported<'a> {
    /// Checks the whole list; the error is its first entry.
    pub fn of(vmi: &'a VirtualMachineInstance) -> Result<Self, Unsupported> {
        match in_vmi(vmi).into_iter().next() {
            None => Ok(Self(Guest::of(vmi))),
            Some(first) => Err(first),
        }
    }
}

impl<'a> Deref for Supported<'a> {
    type Target = Guest<'a>;

    fn deref(&self) -> &Guest<'a> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_matching_field_is_named() {
        let spec = json!({
            "domain": { "devices": {
                "disks": [{ "changedBlockTracking": true }],
                "interfaces": [{ "masquerade": {} }, { "slirp": {} }],
            } },
        });
        let found = in_spec(&spec, "spec.template.spec");
        let fields: Vec<&str> = found.iter().map(|one| &*one.field).collect();
        assert_eq!(
            fields,
            ["spec.template.spec.domain.devices.interfaces[1].slirp"]
        );
        assert_eq!(
            found[0].warning(),
            "accepted, but this version cannot run it yet: \
             spec.template.spec.domain.devices.interfaces[1].slirp: use masquerade: {}, bridge: {} or passtBinding: {}"
        );
        assert_eq!(
            summary(&found).expect("something"),
            "this version cannot run it yet: spec.template.spec.domain.devices.interfaces[1].slirp: use masquerade: {}, \
             bridge: {} or passtBinding: {}"
        );
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn fields_without_effect_are_supported() {
        let interfaces = json!([
            { "name": "a", "masquerade": {} },
            { "name": "b", "state": "absent", "slirp": {} },
            { "name": "c", "slirp": {} },
        ]);
        for (spec, expected) in [
            (
                json!({ "domain": { "devices": { "disks": [{ "changedBlockTracking": true }] } } }),
                vec![],
            ),
            (
                json!({ "domain": { "devices": { "interfaces": interfaces } } }),
                vec!["spec.domain.devices.interfaces[2].slirp"],
            ),
        ] {
            let found = in_spec(&spec, "spec");
            let fields: Vec<&str> = found.iter().map(|one| &*one.field).collect();
            assert_eq!(fields, expected, "{spec}");
        }
    }

    #[test]
    fn fields_that_change_nothing_are_named_and_the_guest_runs() {
        let devices =
            json!({"disks": [{"name": "a"}, {"name": "b", "changedBlockTracking": true}]});
        let spec = json!({"domain": {"devices": devices, "features": {"apic": {}}}});
        let found = without_effect(&spec, "spec");
        assert_eq!(
            found.iter().map(Unsupported::notice).collect::<Vec<_>>(),
            [
                "accepted, but it has no effect: spec.domain.devices.disks[1].changedBlockTracking: a \
                 VirtualMachineBackupTracker has the changes of all disks recorded; leave it out"
            ]
        );
        assert_eq!(in_spec(&spec, "spec"), []);
    }

    #[test]
    fn supported_guest_uses_no_row() {
        let vmi = |json| -> VirtualMachineInstance { serde_json::from_value(json).expect("a VMI") };
        assert!(Supported::of(&vmi(json!({}))).is_ok());
        let interfaces = json!([{"name": "a", "slirp": {}}]);
        let object = json!({"spec": {"domain": {"devices": {"interfaces": interfaces}}}});
        let error = Supported::of(&vmi(object)).expect_err("not supported");
        assert_eq!(error.field, "spec.domain.devices.interfaces[0].slirp");
    }
}
