//! Unsupported features: valid fields and kinds of the API that this version cannot run. This is the
//! one list: to support a feature, delete its row.
//!
//! Objects that use them are accepted with a warning per occurrence. The controllers read the same
//! list and do not start such a guest.

use std::fmt;

use serde::Serialize;
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
    /// This string.
    Equals(&'static str),
}

/// A kind whose objects are stored and validated, but not reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedKind {
    pub group: &'static str,
    pub kind: &'static str,
}

/// All unsupported fields of a VMI's spec.
#[rustfmt::skip]
pub const FIELDS: &[UnsupportedField] = &[
    equals("architecture", "arm64", "arm64 guests", "use amd64"),
    equals("architecture", "s390x", "s390x guests", "use amd64"),
    present("volumes[*].memoryDump", "memory dumps", LEAVE_OUT),
    present("volumes[*].downwardMetrics", "downward metrics", LEAVE_OUT),
    present("volumes[*].containerPath", "container path volumes", FILES),
    present("networks[*].multus", "secondary networks", "use pod: {}"),
    present("networks[*].resourceClaim", "networks by resource claim", "use pod: {}"),
    present("domain.devices.interfaces[*].sriov", "SR-IOV", BINDING),
    present("domain.devices.interfaces[*].passtBinding", "passt", BINDING),
    present("domain.devices.interfaces[*].binding", "network binding plugins", BINDING),
    present("domain.devices.interfaces[*].portRanges", "port ranges", "list single ports under ports"),
    present("domain.devices.interfaces[*].pciAddress", "PCI addresses of interfaces", LEAVE_OUT),
    present("domain.devices.interfaces[*].dhcpOptions", "DHCP options", LEAVE_OUT),
    enabled("domain.devices.disks[*].lun.reservation", "SCSI persistent reservations", LEAVE_OUT),
    present("domain.devices.disks[*].disk.pciAddress", "PCI addresses of disks", LEAVE_OUT),
    enabled("domain.devices.disks[*].dedicatedIOThread", "dedicated I/O threads", LEAVE_OUT),
    enabled("domain.devices.disks[*].changedBlockTracking", "changed block tracking", LEAVE_OUT),
    present("domain.devices.disks[*].blockSize.matchVolume", "block size of the volume", "use custom with logical and physical"),
    present("domain.devices.filesystems[*]", "virtiofs", "use a disk"),
    present("domain.devices.gpus[*]", "GPUs", LEAVE_OUT),
    present("domain.devices.hostDevices[*]", "host devices", LEAVE_OUT),
    present("domain.devices.clientPassthrough", "USB redirection", LEAVE_OUT),
    present("domain.devices.downwardMetrics", "downward metrics", LEAVE_OUT),
    present("domain.devices.tpm", "TPM", LEAVE_OUT),
    present("domain.devices.watchdog.diag288", "diag288 watchdog", "use i6300esb: {}"),
    enabled("domain.devices.autoattachVSOCK", "VSOCK", "set it to false"),
    present("domain.launchSecurity", "launch security", LEAVE_OUT),
    present("domain.chassis", "chassis information", LEAVE_OUT),
    present("domain.ioThreadsPolicy", "I/O thread policies", LEAVE_OUT),
    present("domain.ioThreads", "I/O threads", LEAVE_OUT),
    enabled("domain.cpu.dedicatedCpuPlacement", "dedicated CPUs", "set it to false"),
    enabled("domain.cpu.isolateEmulatorThread", "isolated emulator threads", "set it to false"),
    present("domain.cpu.numa", "NUMA", LEAVE_OUT),
    present("domain.cpu.realtime", "realtime CPUs", LEAVE_OUT),
    present("domain.memory.hugepages", "huge pages", LEAVE_OUT),
    enabled("domain.firmware.bootloader.efi.persistent", "persistent EFI variables", "set it to false"),
    present("domain.firmware.acpi", "ACPI tables", LEAVE_OUT),
    present("accessCredentials[*]", "access credentials", "put keys and passwords into the user data of cloudInitNoCloud"),
    present("resourceClaims[*]", "resource claims", LEAVE_OUT),
    present("livenessProbe.exec", "exec probes", PROBE),
    present("livenessProbe.guestAgentPing", "guest agent probes", PROBE),
    present("readinessProbe.exec", "exec probes", PROBE),
    present("readinessProbe.guestAgentPing", "guest agent probes", PROBE),
];

const LEAVE_OUT: &str = "leave it out";
const PROBE: &str = "use tcpSocket or httpGet";
const FILES: &str = "write the files with the user data of cloudInitNoCloud";
const BINDING: &str = "use masquerade: {} or bridge: {}";

/// All unsupported kinds.
pub const KINDS: &[UnsupportedKind] = &[
    kind_row(SNAPSHOT, "VirtualMachineSnapshot"),
    kind_row(SNAPSHOT, "VirtualMachineSnapshotContent"),
    kind_row(SNAPSHOT, "VirtualMachineRestore"),
    kind_row("pool.kubevirt.io", "VirtualMachinePool"),
    kind_row("clone.kubevirt.io", "VirtualMachineClone"),
    kind_row("export.kubevirt.io", "VirtualMachineExport"),
    kind_row("kubevirt.io", "VirtualMachineInstanceMigration"),
    kind_row("migrations.kubevirt.io", "MigrationPolicy"),
    kind_row("backup.kubevirt.io", "VirtualMachineBackup"),
    kind_row("backup.kubevirt.io", "VirtualMachineBackupTracker"),
    kind_row("plugin.kubevirt.io", "Plugin"),
    kind_row(TEMPLATE, "VirtualMachineTemplate"),
    kind_row(TEMPLATE, "VirtualMachineTemplateRequest"),
];

const SNAPSHOT: &str = "snapshot.kubevirt.io";
const TEMPLATE: &str = "template.kubevirt.io";

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

const fn equals(
    path: &'static str,
    value: &'static str,
    feature: &'static str,
    remedy: &'static str,
) -> UnsupportedField {
    UnsupportedField {
        path,
        condition: Condition::Equals(value),
        feature,
        remedy,
    }
}

const fn kind_row(group: &'static str, kind: &'static str) -> UnsupportedKind {
    UnsupportedKind { group, kind }
}

/// An occurrence of an unsupported field in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Path from the root of the object, with indices.
    pub field: String,
    pub remedy: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.remedy)
    }
}

impl Unsupported {
    /// Warning for the author of the object.
    pub fn warning(&self) -> String {
        format!("accepted, but this version cannot run it yet: {self}")
    }
}

/// All occurrences in one message, for the condition of a guest that does not start.
pub fn summary(all: &[Unsupported]) -> Option<String> {
    let all: Vec<String> = all.iter().map(Unsupported::to_string).collect();
    (!all.is_empty()).then(|| format!("this version cannot run it yet: {}", all.join("; ")))
}

/// Warning for the author of an object of an unsupported kind.
pub fn kind(group: &str, kind: &str) -> Option<String> {
    let is_unsupported = KINDS
        .iter()
        .any(|row| row.group == group && row.kind == kind);
    is_unsupported.then(|| {
        format!(
            "accepted, but this version cannot run it yet: {kind} of {group} is kept and checked, \
             and nothing acts on it"
        )
    })
}

/// The unsupported fields in a VMI's spec; `path` is the path of the spec in the object.
pub fn in_vmi(spec: &impl Serialize, path: &str) -> Vec<Unsupported> {
    // Serialization fails only for values that JSON cannot hold, which no request contains.
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let occurrences = |row: &UnsupportedField| {
        let remedy = row.remedy;
        row.find(&spec).into_iter().map(move |field| Unsupported {
            field: format!("{path}.{field}"),
            remedy,
        })
    };
    FIELDS.iter().flat_map(occurrences).collect()
}

impl UnsupportedField {
    /// Paths of all occurrences, with indices.
    fn find(&self, spec: &Value) -> Vec<String> {
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
        match (self, value) {
            (Self::Present, _) | (Self::True, Value::Bool(true)) => true,
            (Self::Equals(expected), Value::String(text)) => text == expected,
            (Self::True | Self::Equals(_), _) => false,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_occurrence_is_reported() {
        let spec = json!({
            "volumes": [{ "name": "a", "emptyDisk": {} }, { "name": "b", "downwardMetrics": {} }],
            "domain": { "cpu": { "dedicatedCpuPlacement": false } },
            "resourceClaims": [{ "name": "c" }],
        });
        let found = in_vmi(&spec, "spec.template.spec");
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
    fn value_of_a_row_is_compared() {
        let found = |architecture| in_vmi(&json!({ "architecture": architecture }), "spec").len();
        assert_eq!(found("arm64"), 1);
        assert_eq!(found("amd64"), 0);
    }
}
