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
    /// This string.
    Equals(&'static str),
}

/// All unsupported fields of a VMI's spec.
#[rustfmt::skip]
pub const FIELDS: &[UnsupportedField] = &[
    equals("architecture", "arm64", "arm64 guests", ARCHITECTURE),
    equals("architecture", "s390x", "s390x guests", ARCHITECTURE),
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

pub(super) const ARCHITECTURE: &str = "use amd64";
pub(super) const LEAVE_OUT: &str = "leave it out";
const PROBE: &str = "use tcpSocket or httpGet";
const FILES: &str = "write the files with the user data of cloudInitNoCloud";
pub(super) const BINDING: &str = "use masquerade: {} or bridge: {}";

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
