//! The disks of a VM, and names that follow from a snapshot.

use kubevirt_api::snapshot::VirtualMachineSnapshot;
use serde_json::Value;

/// A volume of the VM that has a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) volume: String,
    pub(super) claim: String,
    pub(super) state: DiskState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiskState {
    /// With the name of the snapshot class.
    Copyable(String),
    /// With the reason.
    NotCopyable(String),
    /// The claim does not exist.
    Missing,
    /// The claim has no volume yet.
    Unbound,
}

/// The name of the claim of a volume in the spec of a VM.
pub(crate) fn claim_of(volume: &Value) -> Option<&str> {
    let claim = volume.pointer("/persistentVolumeClaim/claimName");
    claim
        .or_else(|| volume.pointer("/dataVolume/name"))?
        .as_str()
}

/// The volumes in the spec of a VM.
pub(super) fn volumes(spec: &Value) -> &[Value] {
    let volumes = spec.pointer("/template/spec/volumes");
    volumes.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn content_name(snapshot: &VirtualMachineSnapshot) -> String {
    format!("vmsnapshot-content-{}", uid(snapshot))
}

/// The beginning of the names of its volume snapshots.
pub(super) fn prefix(snapshot: &VirtualMachineSnapshot) -> String {
    format!("vmsnapshot-{}-volume-", uid(snapshot))
}

pub(super) fn volume_snapshot_name(snapshot: &VirtualMachineSnapshot, volume: &str) -> String {
    format!("{}{volume}", prefix(snapshot))
}

fn uid(snapshot: &VirtualMachineSnapshot) -> &str {
    snapshot.metadata.uid.as_deref().unwrap_or_default()
}
