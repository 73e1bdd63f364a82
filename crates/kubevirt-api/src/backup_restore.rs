//! Restores of backups: a backup in a claim, with the backups it builds on, becomes claims again
//! (`backup.ferrovirt.io`). `KubeVirt` has no such kind, so its group is not `KubeVirt`'s.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, ObjectMeta},
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{open_enum::open_enum, resource::kind, tolerant::null_as_default};

/// Fills claims with the disks of a backup.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineBackupRestore {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineBackupRestoreSpec,
    pub status: Option<VirtualMachineBackupRestoreStatus>,
}

kind!(VirtualMachineBackupRestore {
    group: "backup.ferrovirt.io",
    version: "v1alpha1",
    plural: "virtualmachinebackuprestores",
    scope: NamespaceResourceScope,
    spec: VirtualMachineBackupRestoreSpec,
    status: VirtualMachineBackupRestoreStatus,
});

/// Which backup, and which claims get its disks; fixed once made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "is fixed once made: delete this restore and make another"}, {"rule": "!has(self.targetPolicy) || self.targetPolicy != 'Overwrite' || has(self.volumes) && self.volumes.all(one, has(one.claimName) && !has(one.claimTemplate))", "message": "targetPolicy Overwrite needs volumes, each with the claimName of an existing claim and without a claimTemplate"}])))]
pub struct VirtualMachineBackupRestoreSpec {
    /// The backup to restore: the name of a `VirtualMachineBackup`, or a claim and a directory in it.
    #[serde(deserialize_with = "null_as_default")]
    pub source: BackupRestoreSource,
    /// What to do with claims: Create (the default) makes new ones, Overwrite writes to existing
    /// ones, which nothing may use meanwhile, and whose data is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_policy: Option<TargetPolicy>,
    /// Which volumes of the backup; all when empty, each to a new claim with the name of the restore,
    /// a hyphen, and the name of the volume.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["name"]), extend("maxItems" = 32)))]
    pub volumes: Vec<BackupRestoreVolume>,
    /// How new claims are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_template: Option<BackupRestoreClaim>,
}

/// Where a backup is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{"rule": "has(self.backupName) ? !has(self.pvcName) && !has(self.directory) : has(self.pvcName) && has(self.directory)", "message": "needs backupName, or both pvcName and directory"}])))]
pub struct BackupRestoreSource {
    /// A `VirtualMachineBackup` of this namespace. The restore waits until it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1), extend("maxLength" = 253)))]
    pub backup_name: Option<String>,
    /// The claim with the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1), extend("maxLength" = 253)))]
    pub pvc_name: Option<String>,
    /// The directory of the backup in that claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = r"^[^./\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*$"), extend("maxLength" = 255)))]
    pub directory: Option<String>,
}

/// A volume of a backup, and the claim that gets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BackupRestoreVolume {
    /// Volume of the VM, as the backup names it.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1), extend("maxLength" = 63)))]
    pub name: String,
    /// The claim; the name of the restore, a hyphen and the name of the volume when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"), extend("maxLength" = 253)))]
    pub claim_name: Option<String>,
    /// How the claim is made, instead of `spec.claimTemplate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_template: Option<BackupRestoreClaim>,
}

/// How a claim is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BackupRestoreClaim {
    /// The default one of the cluster when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 253)))]
    pub storage_class_name: Option<String>,
    /// `ReadWriteOnce` when empty.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic"), extend("maxItems" = 4)))]
    pub access_modes: Vec<String>,
    /// Filesystem (the default) or Block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<ClaimVolumeMode>,
    /// The size of the disk; that of the disk in the backup when unset, and never less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
}

/// How far a restore has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineBackupRestoreStatus {
    /// Pending, Inspecting, Restoring, Succeeded or Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<RestorePhase>,
    /// Of all disks, such as 42.0%; while the backup is inspected, of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// How often the inspection of the backup was begun anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
    /// The claim with the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_name: Option<String>,
    /// The directory of the backup in that claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The disks that are restored; known once the backup was inspected.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["name"])))]
    pub volumes: Vec<RestoredVolume>,
    /// Complete, Failed and Progressing.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
}

/// A disk that is restored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RestoredVolume {
    /// Volume of the VM, as the backup names it.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// The claim that gets it.
    #[serde(deserialize_with = "null_as_default")]
    pub claim_name: String,
    /// The size of the disk in the backup.
    #[serde(deserialize_with = "null_as_default")]
    pub disk_bytes: i64,
    /// Pending, Restoring or Succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<RestorePhase>,
    /// Of this disk, such as 42.0%.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Verified: all files had the checksums that the backup names. Missing: the backup has none, or
    /// not of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksums: Option<Checksums>,
    /// How often it was begun anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
}

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// The value of an annotation of a claim: which restore writes to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreMark {
    /// The name of the restore.
    pub name: String,
    pub uid: String,
    pub state: MarkState,
    /// Of a complete disk: whether all files had checksums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
}

/// What a restore does with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkState {
    /// Nothing is written yet.
    Reserved,
    /// The disk is not complete.
    Writing,
    /// The disk is complete.
    Done,
}

impl RestoreMark {
    /// `None` if the text is no mark: a user wrote it.
    pub fn parse(text: &str) -> Option<Self> {
        let mark: Self = serde_json::from_str(text).ok()?;
        // It is shown in messages and commands.
        let is_plain =
            |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || b"-.".contains(&one);
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= MAX_NAME
                && !name.starts_with('-')
                && name.bytes().all(is_plain)
        };
        (is_name(&mark.name) && is_name(&mark.uid)).then_some(mark)
    }

    /// Whether the claim has no complete disk, or will soon have none.
    pub fn is_open(&self) -> bool {
        self.state != MarkState::Done
    }
}

open_enum! {
    /// Which claims a restore writes to.
    TargetPolicy {
        Create = "Create",
        Overwrite = "Overwrite",
    }
}

open_enum! {
    /// How a claim is used.
    ClaimVolumeMode {
        Filesystem = "Filesystem",
        Block = "Block",
    }
}

open_enum! {
    /// How far a restore has come.
    RestorePhase {
        Pending = "Pending",
        Inspecting = "Inspecting",
        Restoring = "Restoring",
        Succeeded = "Succeeded",
        Failed = "Failed",
    }
}

open_enum! {
    /// Whether the files of a backup were compared with checksums.
    Checksums {
        Verified = "Verified",
        Missing = "Missing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_that_no_restore_writes_is_none() {
        let read = |name: &str, uid: &str, state: &str| {
            let text = serde_json::json!({"name": name, "uid": uid, "state": state});
            RestoreMark::parse(&text.to_string())
        };
        let mark = read("wiki-back.1", "8b1e-01", "Writing").expect("a mark");
        assert!(mark.is_open());
        assert!(!read("a", "b", "Done").expect("a mark").is_open());
        for (name, uid, state) in [
            ("a; rm", "b", "Done"),
            ("--all", "b", "Done"),
            ("", "b", "Done"),
            ("a", "$(b)", "Done"),
            ("a", "b", "Other"),
            (&"a".repeat(254), "b", "Done"),
        ] {
            assert_eq!(read(name, uid, state), None, "{name} {uid} {state}");
        }
        assert_eq!(RestoreMark::parse("x"), None);
    }
}
