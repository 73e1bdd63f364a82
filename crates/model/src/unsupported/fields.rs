//! The table of unsupported fields, and the search for them in a spec.

use serde_json::Value;

/// A field of a VMI's spec that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedField {
    /// Path below the spec of a VMI; `[*]` stands for every element of a list.
    pub path: &'static str,
    pub condition: Condition,
    pub feature: &'static str,
    /// How to change the object so that it runs.
    pub remedy: &'static str,
}

/// The values of a field that are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Any value except null.
    Present,
    /// The boolean `true`.
    True,
}

/// All unsupported fields of a VMI's spec.
#[rustfmt::skip]
pub const FIELDS: &[UnsupportedField] = &[
    present("domain.devices.interfaces[*].slirp", "slirp", BINDING),
    present("domain.devices.interfaces[*].macvtap", "macvtap", BINDING),
    present("domain.devices.interfaces[*].passt", "passt", BINDING),
];

/// Fields that change nothing in this version, although the guest runs; each with the reason.
#[rustfmt::skip]
pub const WITHOUT_EFFECT: &[UnsupportedField] = &[
    enabled("domain.devices.disks[*].changedBlockTracking", "a layer that records changes", TRACKER),
    enabled("domain.features.apic.endOfInterrupt", "end of interrupts", "libvirt decides; leave it out"),
    present("domain.launchSecurity.sev.attestation", "attestation by a client", "let the guest attest itself"),
];

const TRACKER: &str =
    "a VirtualMachineBackupTracker has the changes of all disks recorded; leave it out";
pub(super) const ARCHITECTURE: &str = "use amd64, arm64 or s390x";
pub(super) const LEAVE_OUT: &str = "leave it out";
pub(super) const BINDING: &str = "use masquerade: {}, bridge: {} or passtBinding: {}";

const fn present(
    path: &'static str,
    feature: &'static str,
    remedy: &'static str,
) -> UnsupportedField {
    UnsupportedField {
        path,
        condition: Condition::Present,
        feature,
        remedy,
    }
}

const fn enabled(
    path: &'static str,
    feature: &'static str,
    remedy: &'static str,
) -> UnsupportedField {
    UnsupportedField {
        path,
        condition: Condition::True,
        feature,
        remedy,
    }
}

impl UnsupportedField {
    /// Paths of all occurrences, with indices.
    pub(super) fn find(&self, spec: &Value) -> Vec<String> {
        let mut matches = vec![(String::new(), spec)];
        for step in self.path.split('.') {
            matches = matches
                .into_iter()
                .flat_map(|(path, value)| descend(&path, value, step))
                .collect();
        }
        matches
            .into_iter()
            .filter(|(_, value)| self.condition.holds(value))
            .map(|(path, _)| path)
            .collect()
    }
}

impl Condition {
    fn holds(self, value: &Value) -> bool {
        match self {
            Self::Present => true,
            Self::True => *value == Value::Bool(true),
        }
    }
}

/// Follows one step of a row's path, which may match several elements.
fn descend<'a>(path: &str, value: &'a Value, step: &str) -> Vec<(String, &'a Value)> {
    let (name, is_list) = match step.strip_suffix("[*]") {
        Some(name) => (name, true),
        None => (step, false),
    };
    let path = if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    };
    match value.get(name) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) if is_list => items
            .iter()
            .enumerate()
            .map(|(i, item)| (format!("{path}[{i}]"), item))
            .collect(),
        Some(value) => vec![(path, value)],
    }
}
