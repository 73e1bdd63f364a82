//! What the API knows and this version cannot run yet: ONE list. Whoever makes something work
//! deletes its row here, and nothing else has to change.
//!
//! Such objects are good objects: they are accepted, with a warning for each place. Nothing starts
//! without what it asks for: the controllers ask this list, too, and leave it waiting.
//!
//! Kinds as a whole are a table, too: new objects of them bring a warning.
//!
//! Other rows are paths below the spec of a VMI. `[*]` stands for every element, `=x` for
//! "has this value"; a row without `=` matches whatever is present.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::cluster_config::Binding;

/// Binding of guests that name no network. The API's own default is bridge, which takes the network
/// away from the pod and does not migrate.
pub const DEFAULT_BINDING: Binding = Binding::Masquerade;

/// A place in an object that this version cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Path from the root of the object.
    pub field: String,
    /// What to do instead.
    pub remedy: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.remedy)
    }
}

impl Unsupported {
    /// For who writes the object.
    pub fn warning(&self) -> String {
        format!("accepted, but this version cannot run it yet: {self}")
    }
}

/// For who waits for the guest: all places in one sentence.
pub fn summary(all: &[Unsupported]) -> Option<String> {
    let all: Vec<String> = all.iter().map(Unsupported::to_string).collect();
    (!all.is_empty()).then(|| format!("this version cannot run it yet: {}", all.join("; ")))
}

/// Groups and kinds whose objects are kept and checked, and nothing acts on them.
const KINDS: &[(&str, &str)] = &[
    (SNAPSHOT, "VirtualMachineSnapshot"),
    (SNAPSHOT, "VirtualMachineSnapshotContent"),
    (SNAPSHOT, "VirtualMachineRestore"),
    ("pool.kubevirt.io", "VirtualMachinePool"),
    ("clone.kubevirt.io", "VirtualMachineClone"),
    ("export.kubevirt.io", "VirtualMachineExport"),
    ("kubevirt.io", "VirtualMachineInstanceMigration"),
    ("migrations.kubevirt.io", "MigrationPolicy"),
    ("backup.kubevirt.io", "VirtualMachineBackup"),
    ("backup.kubevirt.io", "VirtualMachineBackupTracker"),
    ("plugin.kubevirt.io", "Plugin"),
    (TEMPLATE, "VirtualMachineTemplate"),
    (TEMPLATE, "VirtualMachineTemplateRequest"),
];

const SNAPSHOT: &str = "snapshot.kubevirt.io";
const TEMPLATE: &str = "template.kubevirt.io";

/// For who makes an object of a kind that nothing acts on.
pub fn kind(group: &str, kind: &str) -> Option<String> {
    KINDS.contains(&(group, kind)).then(|| {
        format!(
            "accepted, but this version cannot run it yet: {kind} of {group} is kept and checked, \
             and nothing acts on it"
        )
    })
}

/// Path below the VMI's spec, and the way out.
const IN_VMI: &[(&str, &str)] = &[
    ("architecture=arm64", "use amd64"),
    ("architecture=s390x", "use amd64"),
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

const LEAVE_OUT: &str = "leave it out";
const PROBE: &str = "use tcpSocket or httpGet";
const FILES: &str = "write the files with the user data of cloudInitNoCloud";
const BINDING: &str = "use masquerade: {} or bridge: {}";

pub fn in_vmi(spec: &impl Serialize, path: &str) -> Vec<Unsupported> {
    find_all(IN_VMI, spec, path)
}

fn find_all(rows: &[(&str, &'static str)], spec: &impl Serialize, path: &str) -> Vec<Unsupported> {
    // Only what JSON cannot hold fails here, and such an object came from no request.
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let mut found = Vec::new();
    for (row, remedy) in rows {
        let places = find(row, &spec).into_iter();
        found.extend(places.map(|at| Unsupported {
            field: format!("{path}.{at}"),
            remedy,
        }));
    }
    found
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
    fn kinds_of_the_table_are_judged_and_named() {
        for (group, name) in KINDS {
            let known = crate::kinds::ROWS
                .iter()
                .any(|row| row.group == *group && row.kind == *name);
            assert!(known, "nobody would say so of {name}");
            let warning = kind(group, name).expect("in the table");
            assert!(warning.contains("this version cannot run it yet"));
        }
        assert_eq!(kind("kubevirt.io", "KubeVirt"), None);
    }

    #[test]
    fn values_are_compared() {
        let found = |architecture| in_vmi(&json!({ "architecture": architecture }), "spec").len();
        assert_eq!(found("arm64"), 1);
        assert_eq!(found("amd64"), 0);
    }
}
