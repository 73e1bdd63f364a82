//! What the API knows and this version cannot run yet: ONE list. Whoever makes something work
//! deletes its row here, and nothing else has to change.
//!
//! Rows are paths below the spec of a VMI, or of a VM. `[*]` stands for every element, `=x` for
//! "has this value"; a row without `=` matches whatever is present.

use serde::Serialize;
use serde_json::Value;

use crate::{cluster_config::Binding, violation::Violation};

/// Binding of guests that name no network. The API's own default, bridge, is not there yet.
pub const DEFAULT_BINDING: Binding = Binding::Masquerade;

/// Path below the VMI's spec, and the way out.
const IN_VMI: &[(&str, &str)] = &[
    ("architecture=arm64", "use amd64"),
    ("architecture=s390x", "use amd64"),
    ("volumes[*].hostDisk", DISK),
    ("volumes[*].persistentVolumeClaim", DISK),
    ("volumes[*].dataVolume", DISK),
    ("volumes[*].ephemeral", DISK),
    ("volumes[*].memoryDump", LEAVE_OUT),
    (
        "volumes[*].sysprep",
        "use a containerDisk that holds the answer files",
    ),
    ("volumes[*].configMap", FILES),
    ("volumes[*].secret", FILES),
    ("volumes[*].downwardAPI", FILES),
    ("volumes[*].serviceAccount", FILES),
    ("volumes[*].downwardMetrics", LEAVE_OUT),
    ("volumes[*].containerPath", FILES),
    ("networks[*].multus", "use pod: {}"),
    ("networks[*].resourceClaim", "use pod: {}"),
    ("domain.devices.interfaces[*].bridge", BINDING),
    ("domain.devices.interfaces[*].sriov", BINDING),
    ("domain.devices.interfaces[*].passtBinding", BINDING),
    ("domain.devices.interfaces[*].binding", BINDING),
    (
        "domain.devices.interfaces[*].portRanges",
        "list single ports under ports",
    ),
    ("domain.devices.interfaces[*].pciAddress", LEAVE_OUT),
    ("domain.devices.interfaces[*].dhcpOptions", LEAVE_OUT),
    ("domain.devices.disks[*].lun", "use disk: {bus: virtio}"),
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

/// Path below the VM's spec, and the way out.
const IN_VM: &[(&str, &str)] = &[
    (
        "instancetype",
        "write cpu and memory into template.spec.domain",
    ),
    ("preference", "write the devices into template.spec.domain"),
    ("dataVolumeTemplates[*]", DISK),
    (
        "runStrategy=WaitAsReceiver",
        "use Always, RerunOnFailure, Manual, Once or Halted",
    ),
];

const LEAVE_OUT: &str = "leave it out";
const PROBE: &str = "use tcpSocket or httpGet";
const DISK: &str = "use containerDisk or emptyDisk";
const FILES: &str = "write the files with the user data of cloudInitNoCloud";
const BINDING: &str = "use masquerade: {}";

pub fn in_vmi(spec: &impl Serialize, path: &str) -> Vec<Violation> {
    refuse(IN_VMI, spec, path)
}

pub fn in_vm(spec: &impl Serialize, path: &str) -> Vec<Violation> {
    refuse(IN_VM, spec, path)
}

fn refuse(rows: &[(&str, &str)], spec: &impl Serialize, path: &str) -> Vec<Violation> {
    let spec = serde_json::to_value(spec).unwrap_or_default();
    rows.iter()
        .flat_map(|(row, remedy)| {
            find(row, &spec).into_iter().map(move |at| {
                let detail = format!("not supported by this version yet; {remedy}");
                Violation::not_supported(format!("{path}.{at}"), detail)
            })
        })
        .collect()
}

/// Every place that a row matches, with indices filled in.
fn find(row: &str, spec: &Value) -> Vec<String> {
    let (path, wanted) = match row.split_once('=') {
        Some((path, wanted)) => (path, Some(wanted)),
        None => (row, None),
    };
    let mut places = vec![(String::new(), spec)];
    for step in path.split('.') {
        places = places
            .into_iter()
            .flat_map(|(at, value)| descend(&at, value, step))
            .collect();
    }
    places
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
    fn every_place_is_named() {
        let spec = json!({
            "volumes": [{ "name": "a", "emptyDisk": {} }, { "name": "b", "dataVolume": {} }],
            "domain": { "cpu": { "dedicatedCpuPlacement": false } },
        });
        let violations = in_vmi(&spec, "spec.template.spec");
        assert_eq!(violations.len(), 1);
        assert_eq!(
            violations[0].message,
            "spec.template.spec.volumes[1].dataVolume: not supported by this version yet; \
             use containerDisk or emptyDisk"
        );
    }

    #[test]
    fn values_are_compared() {
        assert_eq!(
            in_vm(&json!({ "runStrategy": "WaitAsReceiver" }), "spec").len(),
            1
        );
        assert_eq!(in_vm(&json!({ "runStrategy": "Once" }), "spec").len(), 0);
    }
}
