//! What the API knows and this version cannot run yet: the one list for fields of a VMI. A change
//! that makes a feature work deletes its row here; nothing else needs to change.
//!
//! Such objects are valid: the webhooks accept them with a warning for each field, and the
//! controller creates no pod for them. On the node, [`Supported`] checks the same list once more
//! before anything is rendered.
//!
//! A row is a path below the spec of a VMI. `[*]` stands for every element, `=x` for "has this
//! value"; a row without `=` matches every value that is present.

use std::ops::Deref;

use kubevirt_api::{VirtualMachineInstance, annotations};
use serde::Serialize;
use serde_json::Value;

use crate::{Guest, Interface, Network, Volume};

/// A field that this version cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {remedy}")]
pub struct Unsupported {
    /// Path from the root of the object.
    pub field: String,
    /// What to do instead.
    pub remedy: &'static str,
}

/// Annotations, and what to do instead.
const IN_ANNOTATIONS: &[(&str, &str)] = &[(annotations::HOOK_SIDECARS, "remove it")];

/// Path below the VMI's spec, and what to do instead.
const IN_SPEC: &[(&str, &str)] = &[
    ("architecture=arm64", ARCHITECTURE),
    ("architecture=s390x", ARCHITECTURE),
    ("volumes[*].memoryDump", LEAVE_OUT),
    ("volumes[*].downwardMetrics", LEAVE_OUT),
    ("volumes[*].containerPath", FILES),
    ("networks[*].multus", "use pod: {}"),
    ("networks[*].resourceClaim", "use pod: {}"),
    ("domain.devices.interfaces[*].sriov", BINDING),
    ("domain.devices.interfaces[*].passtBinding", BINDING),
    ("domain.devices.interfaces[*].binding", BINDING),
    (
        "domain.devices.interfaces[*].portRanges",
        "list single ports under ports",
    ),
    ("domain.devices.interfaces[*].pciAddress", LEAVE_OUT),
    ("domain.devices.interfaces[*].dhcpOptions", LEAVE_OUT),
    ("domain.devices.disks[*].lun.reservation=true", LEAVE_OUT),
    ("domain.devices.disks[*].disk.pciAddress", LEAVE_OUT),
    ("domain.devices.disks[*].dedicatedIOThread=true", LEAVE_OUT),
    (
        "domain.devices.disks[*].changedBlockTracking=true",
        LEAVE_OUT,
    ),
    (
        "domain.devices.disks[*].blockSize.matchVolume",
        "use custom with logical and physical",
    ),
    ("domain.devices.filesystems[*]", "use a disk"),
    ("domain.devices.gpus[*]", LEAVE_OUT),
    ("domain.devices.hostDevices[*]", LEAVE_OUT),
    ("domain.devices.clientPassthrough", LEAVE_OUT),
    ("domain.devices.downwardMetrics", LEAVE_OUT),
    ("domain.devices.tpm", LEAVE_OUT),
    ("domain.devices.watchdog.diag288", "use i6300esb: {}"),
    ("domain.devices.autoattachVSOCK=true", "set it to false"),
    ("domain.launchSecurity", LEAVE_OUT),
    ("domain.chassis", LEAVE_OUT),
    ("domain.ioThreadsPolicy", LEAVE_OUT),
    ("domain.ioThreads", LEAVE_OUT),
    ("domain.cpu.dedicatedCpuPlacement=true", "set it to false"),
    ("domain.cpu.isolateEmulatorThread=true", "set it to false"),
    ("domain.cpu.numa", LEAVE_OUT),
    ("domain.cpu.realtime", LEAVE_OUT),
    ("domain.memory.hugepages", LEAVE_OUT),
    (
        "domain.firmware.bootloader.efi.persistent=true",
        "set it to false",
    ),
    ("domain.firmware.acpi", LEAVE_OUT),
    (
        "accessCredentials[*]",
        "put keys and passwords into the user data of cloudInitNoCloud",
    ),
    ("resourceClaims[*]", LEAVE_OUT),
    ("livenessProbe.exec", PROBE),
    ("livenessProbe.guestAgentPing", PROBE),
    ("readinessProbe.exec", PROBE),
    ("readinessProbe.guestAgentPing", PROBE),
];

const ARCHITECTURE: &str = "use amd64";
const LEAVE_OUT: &str = "leave it out";
const PROBE: &str = "use tcpSocket or httpGet";
const FILES: &str = "write the files with the user data of cloudInitNoCloud";
const BINDING: &str = "use masquerade: {} or bridge: {}";

/// The fields below the spec of a VMI, which is at `path` in its object.
pub fn in_spec(spec: &impl Serialize, path: &str) -> Vec<Unsupported> {
    // Serialization fails only for content that JSON cannot hold, and no request can carry that.
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let mut found = Vec::new();
    for (row, remedy) in IN_SPEC {
        let fields = find(row, &spec).into_iter();
        found.extend(fields.map(|field| Unsupported {
            field: format!("{path}.{field}"),
            remedy,
        }));
    }
    found
}

/// The annotations of a VMI.
pub fn in_annotations(vmi: &VirtualMachineInstance) -> Vec<Unsupported> {
    let annotations = vmi.metadata.annotations.as_ref();
    let is_present = |key: &str| annotations.is_some_and(|all| all.contains_key(key));
    IN_ANNOTATIONS
        .iter()
        .filter(|(key, _)| is_present(key))
        .map(|(key, remedy)| Unsupported {
            field: format!("metadata.annotations[{key}]"),
            remedy,
        })
        .collect()
}

/// The whole list in one sentence.
pub fn summary(all: &[Unsupported]) -> Option<String> {
    let all: Vec<String> = all.iter().map(Unsupported::to_string).collect();
    (!all.is_empty()).then(|| format!("this version cannot run it yet: {}", all.join("; ")))
}

impl Unsupported {
    /// The warning for the user who writes the object.
    pub fn warning(&self) -> String {
        format!("accepted, but this version cannot run it yet: {self}")
    }

    /// The source of a volume.
    pub fn volume(volume: &Volume<'_>) -> Self {
        Self {
            field: volume.field(),
            remedy: remedy(&format!("volumes[*].{}", volume.source.member())),
        }
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

fn remedy(row: &str) -> &'static str {
    let found = IN_SPEC.iter().find(|(known, _)| *known == row);
    found.map_or(LEAVE_OUT, |(_, remedy)| remedy)
}

/// A guest that uses nothing of the list.
#[derive(Debug, Clone)]
pub struct Supported<'a>(Guest<'a>);

impl<'a> Supported<'a> {
    /// Checks the whole list; the error is its first entry.
    pub fn of(vmi: &'a VirtualMachineInstance) -> Result<Self, Unsupported> {
        let found = in_annotations(vmi).into_iter();
        match found.chain(in_spec(&vmi.spec, "spec")).next() {
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

/// Every path that a row matches, with indices filled in.
fn find(row: &str, spec: &Value) -> Vec<String> {
    let (path, wanted) = match row.split_once('=') {
        Some((path, wanted)) => (path, Some(wanted)),
        None => (row, None),
    };
    let mut found = vec![(String::new(), spec)];
    for step in path.split('.') {
        found = found
            .into_iter()
            .flat_map(|(at, value)| descend(&at, value, step))
            .collect();
    }
    found
        .into_iter()
        .filter(|(_, value)| wanted.is_none_or(|wanted| text(value) == wanted))
        .map(|(at, _)| at)
        .collect()
}

fn descend<'a>(at: &str, value: &'a Value, step: &str) -> Vec<(String, &'a Value)> {
    let (name, each) = match step.strip_suffix("[*]") {
        Some(name) => (name, true),
        None => (step, false),
    };
    let at = if at.is_empty() {
        name.to_owned()
    } else {
        format!("{at}.{name}")
    };
    match value.get(name) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) if each => items
            .iter()
            .enumerate()
            .map(|(i, item)| (format!("{at}[{i}]"), item))
            .collect(),
        Some(value) => vec![(at, value)],
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_matching_field_is_named() {
        let spec = json!({
            "volumes": [{ "name": "a", "emptyDisk": {} }, { "name": "b", "downwardMetrics": {} }],
            "domain": { "cpu": { "dedicatedCpuPlacement": false } },
            "resourceClaims": [{ "name": "c" }],
        });
        let found = in_spec(&spec, "spec.template.spec");
        let fields: Vec<&str> = found.iter().map(|one| &*one.field).collect();
        assert_eq!(
            fields,
            [
                "spec.template.spec.volumes[1].downwardMetrics",
                "spec.template.spec.resourceClaims[0]"
            ]
        );
        assert_eq!(
            found[0].warning(),
            "accepted, but this version cannot run it yet: \
             spec.template.spec.volumes[1].downwardMetrics: leave it out"
        );
        assert_eq!(
            summary(&found).expect("something"),
            "this version cannot run it yet: spec.template.spec.volumes[1].downwardMetrics: leave \
             it out; spec.template.spec.resourceClaims[0]: leave it out"
        );
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn values_are_compared() {
        let found = |architecture| in_spec(&json!({ "architecture": architecture }), "spec").len();
        assert_eq!(found("arm64"), 1);
        assert_eq!(found("amd64"), 0);
    }

    #[test]
    fn supported_guest_uses_no_row() {
        let vmi = |json| -> VirtualMachineInstance { serde_json::from_value(json).expect("a VMI") };
        assert!(Supported::of(&vmi(json!({}))).is_ok());
        let key = "hooks.kubevirt.io/hookSidecars";
        for (object, field) in [
            (
                json!({"spec": {"architecture": "arm64"}}),
                "spec.architecture".to_owned(),
            ),
            (
                json!({"metadata": {"annotations": {key: "[]"}}}),
                format!("metadata.annotations[{key}]"),
            ),
        ] {
            let error = Supported::of(&vmi(object)).expect_err("not supported");
            assert_eq!(error.field, field);
        }
    }

    #[test]
    fn unsupported_volume_has_the_remedy_of_its_row() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {"volumes": [
            {"name": "a", "containerPath": {"path": "/p"}},
        ]}}))
        .expect("a VMI");
        let volume = &Guest::of(&vmi).volumes[0];
        let expected = in_spec(&vmi.spec, "spec");
        assert_eq!(expected, [Unsupported::volume(volume)]);
    }
}
