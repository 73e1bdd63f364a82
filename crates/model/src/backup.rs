//! Backups of running guests: what is copied, and the names that virt-controller and virt-handler have to agree
//! on.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::backup::BackupMode;
use kubevirt_api::vmi::UtilityVolumeType;
use kubevirt_api::vmi_status::VirtualMachineInstanceBackupStatus;
use kubevirt_api::{VirtualMachineInstance, annotations};
use sha2::{Digest as _, Sha256};

use crate::{Guest, Storage, Target};

/// The end of the name of the volume that receives a backup.
const VOLUME_SUFFIX: &str = "-backup-target-pvc";
/// Bytes of the name of a backup in other names, which are names of directories, too.
const MAX_NAME: usize = 200;
/// The most checkpoints of a guest that is backed up, besides the one that is made: each takes memory of QEMU.
pub const MAX_CHECKPOINTS: usize = 16;
/// Digits of the hash of a longer name.
const HASH: usize = 16;

/// The name of the volume that receives a backup.
pub fn backup_volume(backup: &str) -> String {
    format!("{}{VOLUME_SUFFIX}", short(backup))
}

/// The directory of a backup that began at that time: a backup that is made again under the same name does not
/// replace the old one.
pub fn backup_directory(backup: &str, start: &Time) -> String {
    let time = start.0.strftime("-%Y%m%d-%H%M%S");
    format!("{}{time}", short(backup))
}

/// The checkpoints that trackers need, by their annotation.
pub fn kept_checkpoints(vmi: &VirtualMachineInstance) -> Vec<String> {
    let all = vmi.metadata.annotations.iter().flatten();
    let all = all.filter(|(key, _)| *key == annotations::KEPT_CHECKPOINTS);
    let names = all.flat_map(|(_, value)| value.split(','));
    let names = names.filter(|name| !name.is_empty());
    names.take(MAX_CHECKPOINTS).map(str::to_owned).collect()
}

/// The checkpoint that the backup is to build on, or its own if it is to be full; `None` if it is of no tracker.
///
/// It is not in the status: virt-handler of a version that knows no checkpoints leaves there what it finds, and that
/// would be taken for the result.
pub fn requested_checkpoint(vmi: &VirtualMachineInstance) -> Option<&str> {
    let all = vmi.metadata.annotations.as_ref()?;
    let name = all.get(annotations::REQUESTED_CHECKPOINT)?;
    (!name.is_empty()).then_some(name)
}

/// Whether the disks are to be offered to a client, not copied. An annotation, as the status has no field for it.
pub fn offers_disks(vmi: &VirtualMachineInstance) -> bool {
    let all = vmi.metadata.annotations.as_ref();
    let mode = all.and_then(|all| all.get(annotations::BACKUP_MODE));
    mode.is_some_and(|mode| mode == BackupMode::Pull.as_str())
}

/// Long names are cut, and stay different by a hash.
fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME {
        return Cow::Borrowed(name);
    }
    let hash: String = hex::encode(Sha256::digest(name.as_bytes()))
        .chars()
        .take(HASH)
        .collect();
    let mut ends = (0..MAX_NAME - HASH).rev();
    let kept = ends.find_map(|end| name.get(..end)).unwrap_or_default();
    Cow::Owned(format!("{kept}-{hash}"))
}

/// Whether the volume is to receive a backup, by the spec.
pub fn is_backup_volume(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let mut volumes = vmi.spec.utility_volumes.iter();
    volumes.any(|one| one.name == volume && one.type_ == Some(UtilityVolumeType::Backup))
}

/// The backup under way, or the last one.
pub fn last_backup(vmi: &VirtualMachineInstance) -> Option<&VirtualMachineInstanceBackupStatus> {
    let tracking = vmi.status.as_ref()?.changed_block_tracking.as_ref()?;
    tracking.backup_status.as_ref()
}

/// The volumes whose disks are copied: those that the guest writes and that outlive its pod. `is_attached`
/// answers for volumes that came while the guest runs.
pub fn backed_up_volumes<'a>(
    guest: &Guest<'a>,
    is_attached: impl Fn(&str) -> bool,
) -> Vec<&'a str> {
    let status = guest.vmi.status.iter();
    let known: Vec<_> = status.flat_map(|status| &status.volume_status).collect();
    let is_there = |name: &str| {
        let status = known.iter().find(|one| one.name == name);
        let came_later = status.is_some_and(|one| one.hotplug_volume.is_some());
        !came_later || is_attached(name)
    };
    let disks = guest.disks.iter();
    let written = disks.filter(|disk| disk.target == Target::Disk && !disk.is_read_only);
    written
        .map(|disk| disk.spec.name.as_str())
        .filter(|name| {
            let volume = guest.volume(name);
            let outlives = volume.is_some_and(|volume| match volume.source.storage() {
                Storage::Claim(claim) => !claim.is_read_only,
                Storage::Host(_) => true,
                Storage::OverlaidClaim(_) | Storage::Pod => false,
            });
            outlives && is_there(name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_short_enough_for_directories() {
        let long = "n".repeat(253);
        let other = format!("{}o", "n".repeat(252));
        let whole = "n".repeat(MAX_NAME);
        let start = Time("2026-11-27T02:37:05Z".parse().unwrap());
        assert_eq!(backup_volume("nightly"), "nightly-backup-target-pvc");
        assert_eq!(
            backup_directory("nightly", &start),
            "nightly-20261127-023705"
        );
        assert!(backup_volume(&long).len() < 255);
        assert!(backup_directory(&long, &start).len() < 255);
        assert_ne!(backup_volume(&long), backup_volume(&other));
        assert_ne!(
            backup_directory(&long, &start),
            backup_directory(&other, &start)
        );
        assert_eq!(backup_volume(&whole), format!("{whole}{VOLUME_SUFFIX}"));
        assert_eq!(short(&long).len(), MAX_NAME);
        assert!(short(&"ä".repeat(200)).len() <= MAX_NAME);
    }

    #[test]
    fn disks_that_outlive_the_pod_are_copied() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "spec": {
                "domain": {"devices": {"disks": [
                    {"name": "root", "disk": {"bus": "virtio"}},
                    {"name": "data", "disk": {"bus": "virtio"}},
                    {"name": "read", "disk": {"bus": "virtio", "readonly": true}},
                    {"name": "cd", "cdrom": {"bus": "sata"}},
                    {"name": "lun", "lun": {"bus": "scsi"}},
                    {"name": "image", "disk": {}},
                    {"name": "scratch", "disk": {}},
                    {"name": "host", "disk": {}},
                    {"name": "hot", "disk": {"bus": "scsi"}},
                    {"name": "late", "disk": {"bus": "scsi"}},
                ]}},
                "volumes": [
                    {"name": "root", "dataVolume": {"name": "root"}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "read", "persistentVolumeClaim": {"claimName": "read"}},
                    {"name": "cd", "persistentVolumeClaim": {"claimName": "cd"}},
                    {"name": "lun", "persistentVolumeClaim": {"claimName": "lun"}},
                    {"name": "image", "containerDisk": {"image": "i"}},
                    {"name": "scratch", "ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
                    {"name": "host", "hostDisk": {"path": "/d", "type": "Disk"}},
                    {"name": "hot", "persistentVolumeClaim": {"claimName": "h", "hotpluggable": true}},
                    {"name": "late", "persistentVolumeClaim": {"claimName": "l", "hotpluggable": true}},
                ],
            },
            "status": {"volumeStatus": [
                {"name": "root", "target": "vda"},
                {"name": "hot", "target": "sda", "hotplugVolume": {}},
                {"name": "late", "target": "", "hotplugVolume": {}},
            ]},
        }))
        .unwrap();
        let found = backed_up_volumes(&Guest::of(&vmi), |name| name == "hot");
        assert_eq!(found, ["root", "data", "host", "hot"]);
    }
}
