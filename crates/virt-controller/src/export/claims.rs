//! The claims of an exported snapshot: each is restored from a volume snapshot. They belong to the export.

use kubevirt_api::annotations;
use kubevirt_api::export::VirtualMachineExport;
use kubevirt_api::snapshot::VolumeBackup;
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use serde_json::{Value, json};

use super::names;
use crate::restore::spec_from_copy;

/// The longest name of a claim.
const MOST: usize = 253;

/// The name of the claim that was copied.
pub(super) fn original(backup: &VolumeBackup) -> &str {
    let metadata = backup.persistent_volume_claim.metadata.as_ref();
    let name = metadata.and_then(|one| one.name.as_deref());
    name.unwrap_or_default()
}

pub(super) fn name(export: &VirtualMachineExport, backup: &VolumeBackup) -> String {
    let name = format!("{}-{}", names::name(export), original(backup));
    if name.len() <= MOST {
        name
    } else {
        launcher_pod::label_value(&name)
    }
}

pub(super) fn body(
    export: &VirtualMachineExport,
    name: &str,
    backup: &VolumeBackup,
    copy: Option<&VolumeSnapshot>,
) -> Value {
    let old = backup.persistent_volume_claim.metadata.as_ref();
    let notes = old.and_then(|old| old.annotations.as_ref());
    let content = notes.and_then(|notes| notes.get(annotations::CDI_CONTENT_TYPE));
    let spec = spec_from_copy(backup, backup.volume_snapshot_name.as_deref(), copy);
    let content = content.map_or("kubevirt", String::as_str);
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": export.metadata.namespace,
            "annotations": {annotations::CDI_CONTENT_TYPE: content},
            "ownerReferences": [names::owner(export)],
        },
        "spec": spec,
    })
}
