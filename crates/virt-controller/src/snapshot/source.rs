//! The disks of a VM, and names that follow from a snapshot.

use kubevirt_api::snapshot::VirtualMachineSnapshot;
use serde_json::Value;

use crate::view::{Plug, Purpose};

const VOLUMES: &str = "/template/spec/volumes";
const DISKS: &str = "/template/spec/domain/devices/disks";

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
    /// There is no guest, and a pod with this name uses the claim.
    InUse(String),
    /// Its data is not complete, with the reason.
    Unpopulated(String),
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
    let volumes = spec.pointer(VOLUMES);
    volumes.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The spec that a guest was started from, with the hot-plugged volumes that it has now: those of the VM that are
/// among `plugs`.
pub(super) fn with_plugs(mut started: Value, now: &Value, plugs: &[Plug]) -> Value {
    let items = |spec: &Value, path: &str| {
        let list = spec.pointer(path).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let is_plugged = |item: &Value| {
        // A dump is of no use to a restored guest.
        let mut disks = plugs.iter().filter(|plug| plug.purpose == Purpose::Disk);
        disks.any(|plug| item["name"] == *plug.volume)
    };
    let (volumes, disks) = (items(&started, VOLUMES), items(&started, DISKS));
    let (mut kept, unplugged): (Vec<Value>, Vec<Value>) = volumes
        .iter()
        .cloned()
        .partition(|one| !is_hotpluggable(one));
    kept.extend(items(now, VOLUMES).into_iter().filter(is_plugged));
    let mut kept_disks: Vec<Value> = disks
        .iter()
        // A drive stays without its medium.
        .filter(|disk| !has_name(&unplugged, disk) || disk.get("cdrom").is_some())
        .cloned()
        .collect();
    for disk in items(now, DISKS).into_iter().filter(is_plugged) {
        if !has_name(&kept_disks, &disk) {
            kept_disks.push(disk);
        }
    }
    let spec = &mut started["template"]["spec"];
    if kept != volumes {
        spec["volumes"] = kept.into();
    }
    if kept_disks != disks {
        spec["domain"]["devices"]["disks"] = kept_disks.into();
    }
    started
}

/// Whether one of the items has the name of the other item.
fn has_name(all: &[Value], item: &Value) -> bool {
    all.iter().any(|one| one["name"] == item["name"])
}

fn is_hotpluggable(volume: &Value) -> bool {
    [
        "/persistentVolumeClaim/hotpluggable",
        "/dataVolume/hotpluggable",
    ]
    .iter()
    .any(|path| volume.pointer(path) == Some(&Value::Bool(true)))
        || volume.get("memoryDump").is_some()
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
