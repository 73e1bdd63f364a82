//! The claims of a restore: their names, their sizes, and the mark on them. Pure.

use kube::ResourceExt as _;
use kubevirt_api::annotations;
use kubevirt_api::backup_restore::{
    BackupRestoreClaim, ClaimVolumeMode, MarkState, RestoreMark, RestoredVolume,
    VirtualMachineBackupRestore as Restore,
};
use kubevirt_api::quantity::Amount;
use serde_json::{Value, json};

use crate::data_volume::with_overhead;

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;

/// The claim of a volume, by the spec or by default.
pub(super) fn name(restore: &Restore, volume: &str) -> String {
    let mut all = restore.spec.volumes.iter();
    let given = all.find(|one| one.name == volume);
    let given = given.and_then(|one| one.claim_name.clone());
    given.unwrap_or_else(|| format!("{}-{volume}", restore.name_any()))
}

/// How the claim of a volume is made.
pub(super) fn template(restore: &Restore, volume: &str) -> BackupRestoreClaim {
    let mut all = restore.spec.volumes.iter();
    let own = all.find(|one| one.name == volume);
    let own = own.and_then(|one| one.claim_template.clone());
    own.or_else(|| restore.spec.claim_template.clone())
        .unwrap_or_default()
}

/// The size of the disk in the claim. A message if the given size cannot be.
pub(super) fn disk_bytes(template: &BackupRestoreClaim, in_backup: u64) -> Result<u64, String> {
    let Some(size) = &template.size else {
        return Ok(in_backup);
    };
    let given = Amount::parse(size).map_err(|error| format!("claimTemplate.size: {error}"))?;
    let given = given.units();
    if given < in_backup {
        let least = Amount::of(in_backup).to_binary().0;
        return Err(format!(
            "claimTemplate.size is {}, and the disk in the backup has {least}",
            size.0
        ));
    }
    Ok(given - given % SECTOR)
}

/// The claim to create; `None` if its size is impossible.
pub(super) fn render(restore: &Restore, volume: &RestoredVolume) -> Option<Value> {
    let template = template(restore, &volume.name);
    let disk = disk_bytes(&template, bytes(volume)).ok()?;
    let is_block = template.volume_mode == Some(ClaimVolumeMode::Block);
    let size = if is_block {
        disk.div_ceil(MIB).saturating_mul(MIB)
    } else {
        with_overhead(disk)
    };
    let modes = if template.access_modes.is_empty() {
        vec!["ReadWriteOnce".to_owned()]
    } else {
        template.access_modes
    };
    Some(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": volume.claim_name,
            "namespace": restore.namespace(),
            "annotations": {
                annotations::BACKUP_RESTORE: mark(restore, MarkState::Writing, None),
                annotations::CDI_CONTENT_TYPE: "kubevirt",
            },
            "ownerReferences": [owner(restore)],
        },
        "spec": {
            "accessModes": modes,
            "storageClassName": template.storage_class_name,
            "volumeMode": if is_block { "Block" } else { "Filesystem" },
            "resources": {"requests": {"storage": Amount::of(size).to_binary()}},
        },
    }))
}

/// The size of the disk in the backup.
pub(super) fn bytes(volume: &RestoredVolume) -> u64 {
    u64::try_from(volume.disk_bytes).unwrap_or_default()
}

/// The text of the mark.
pub(super) fn mark(restore: &Restore, state: MarkState, verified: Option<bool>) -> String {
    let mark = RestoreMark {
        name: restore.name_any(),
        uid: restore.uid().unwrap_or_default(),
        state,
        verified,
    };
    json!(mark).to_string()
}

pub(super) fn owner(restore: &Restore) -> Value {
    json!({
        "apiVersion": Restore::API_VERSION,
        "kind": Restore::KIND,
        "name": restore.name_any(),
        "uid": restore.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
