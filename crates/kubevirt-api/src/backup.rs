//! Backups of running VMs, full or incremental, and the trackers that remember the last one
//! (`backup.kubevirt.io`).

use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time},
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, open_enum::open_enum, resource::kind, tolerant::null_as_default};

/// Copies the disks of a running VM once: into a claim (Push), or by offering them to a backup
/// program (Pull).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineBackup {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineBackupSpec,
    pub status: Option<VirtualMachineBackupStatus>,
}

kind!(VirtualMachineBackup {
    group: "backup.kubevirt.io",
    version: "v1alpha1",
    plural: "virtualmachinebackups",
    scope: NamespaceResourceScope,
    spec: VirtualMachineBackupSpec,
    status: VirtualMachineBackupStatus,
});

/// What to copy and where to; fixed once made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "is fixed once made: delete this backup and make another"}, {"rule": "has(self.pvcName) && self.pvcName != ''", "message": "pvcName is needed in both modes: name the claim to write to"}, {"rule": "!has(self.mode) || self.mode != 'Pull' || has(self.tokenSecretRef) && self.tokenSecretRef != ''", "message": "mode Pull needs tokenSecretRef: name a Secret whose key token is the password"}])))]
pub struct VirtualMachineBackupSpec {
    /// A VM (apiGroup `kubevirt.io`, kind `VirtualMachine`) for a full backup, or a tracker
    /// (apiGroup `backup.kubevirt.io`, kind `VirtualMachineBackupTracker`) for what changed since
    /// its last checkpoint.
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{"rule": "has(self.apiGroup)", "message": "apiGroup is needed: kubevirt.io for a VM, backup.kubevirt.io for a tracker"}, {"rule": "!has(self.apiGroup) || self.apiGroup in ['kubevirt.io', 'backup.kubevirt.io']", "message": "apiGroup must be kubevirt.io for a VM or backup.kubevirt.io for a tracker"}, {"rule": "!has(self.apiGroup) || self.apiGroup != 'kubevirt.io' || self.kind == 'VirtualMachine'", "message": "kind must be VirtualMachine with apiGroup kubevirt.io"}, {"rule": "!has(self.apiGroup) || self.apiGroup != 'backup.kubevirt.io' || self.kind == 'VirtualMachineBackupTracker'", "message": "kind must be VirtualMachineBackupTracker with apiGroup backup.kubevirt.io"}, {"rule": "self.name != ''", "message": "name must not be empty"}])))]
    #[serde(deserialize_with = "null_as_default")]
    pub source: TypedLocalObjectReference,
    /// Push (the default) writes the disks into the claim; Pull offers them over the network and
    /// uses the claim as scratch space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<BackupMode>,
    /// Claim to write to; needed in both modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_name: Option<String>,
    /// Does not ask the guest to write its caches to disk first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_quiesce: Option<bool>,
    /// Copies everything even if a checkpoint exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_full_backup: Option<bool>,
    /// Secret whose key token is the password for fetching; needed with Pull.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<String>,
    /// How long a Pull backup stays on offer, such as 30m; 2h when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_duration: Option<Duration>,
}

/// How far a backup has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineBackupStatus {
    /// Full or Incremental.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<BackupType>,
    /// Complete, Failed, Progressing and Quiesced.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
    /// Checkpoint from which the next incremental backup continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_name: Option<String>,
    /// Certificates to check the endpoint with, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_cert: Option<String>,
    /// Disks that are in it.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub included_volumes: Vec<BackupVolumeInfo>,
    /// UID of the export that offers it.
    #[serde(rename = "exportUID", skip_serializing_if = "Option::is_none")]
    pub export_uid: Option<String>,
}

/// A disk of a backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BackupVolumeInfo {
    /// Volume of the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_name: String,
    /// Where its data can be fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_endpoint: Option<String>,
    /// Where the list of its changed blocks can be fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map_endpoint: Option<String>,
}

/// Remembers the last checkpoint of a VM's disks, so that a backup need only copy what changed
/// since.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineBackupTracker {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineBackupTrackerSpec,
    pub status: Option<VirtualMachineBackupTrackerStatus>,
}

kind!(VirtualMachineBackupTracker {
    group: "backup.kubevirt.io",
    version: "v1alpha1",
    plural: "virtualmachinebackuptrackers",
    scope: NamespaceResourceScope,
    spec: VirtualMachineBackupTrackerSpec,
    status: VirtualMachineBackupTrackerStatus,
});

/// Which VM it follows; fixed once made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "is fixed once made: delete this tracker and make another"}])))]
pub struct VirtualMachineBackupTrackerSpec {
    /// The VM: apiGroup `kubevirt.io`, kind `VirtualMachine` and its name.
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{"rule": "has(self.apiGroup) && self.apiGroup == 'kubevirt.io'", "message": "apiGroup must be kubevirt.io"}, {"rule": "self.kind == 'VirtualMachine'", "message": "kind must be VirtualMachine"}, {"rule": "self.name != ''", "message": "name must not be empty"}])))]
    #[serde(deserialize_with = "null_as_default")]
    pub source: TypedLocalObjectReference,
}

/// What it remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineBackupTrackerStatus {
    /// The last checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_checkpoint: Option<BackupCheckpoint>,
    /// True while a restarted guest has yet to learn of the checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_redefinition_required: Option<bool>,
}

/// A moment from which changes of disks are recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BackupCheckpoint {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// Disks that it covers.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub volumes: Vec<BackupVolumeInfo>,
}

/// Instructions of the controller to the node about a backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BackupOptions {
    /// Name of the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_name: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<BackupCmd>,
    /// Push or Pull.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<BackupMode>,
    /// When the backup was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_start_time: Option<Time>,
    /// Checkpoint to start from; a full backup when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incremental: Option<String>,
    /// Where the claim is found in the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_path: Option<String>,
    /// Does not ask the guest to write its caches to disk first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_quiesce: Option<bool>,
    /// Address that the pod offers the disks to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export_server_addr: Option<String>,
    /// Name in the certificate of that server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export_server_name: Option<String>,
    /// Key of the pod's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_key: Option<String>,
    /// Certificate that the pod shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_cert: Option<String>,
    /// Certificates to check the server with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<String>,
}

open_enum! {
    /// Who moves the data.
    BackupMode {
        Push = "Push",
        Pull = "Pull",
    }
}

open_enum! {
    /// How much was copied.
    BackupType {
        Full = "Full",
        Incremental = "Incremental",
    }
}

open_enum! {
    /// Instructions to a node about a backup.
    BackupCmd {
        Start = "Start",
        Abort = "Abort",
        Export = "Export",
    }
}

open_enum! {
    /// Whether the guest wrote its caches to disk.
    QuiesceStatus {
        Succeeded = "Succeeded",
        Failed = "Failed",
        Skipped = "Skipped",
    }
}

open_enum! {
    /// Types of conditions of backups.
    ConditionType {
        Complete = "Complete",
        Failed = "Failed",
        Progressing = "Progressing",
        Quiesced = "Quiesced",
    }
}
