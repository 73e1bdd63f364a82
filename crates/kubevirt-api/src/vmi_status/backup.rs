//! Backups and the tracking of changed blocks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::tolerant::null_as_default;

/// `backupStatus` of [`ChangedBlockTrackingStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceBackupStatus {
    /// Name of the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_name: Option<String>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    /// Whether it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<bool>,
    /// Whether it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    /// What there is to say about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_msg: Option<String>,
    /// State that the next incremental backup starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_name: Option<String>,
    /// Volumes in it.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub volumes: Vec<VirtualMachineInstanceBackupVolumeInfo>,
    /// Whether the guest's filesystems were held still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiesce_status: Option<String>,
}

/// `volumes` of [`VirtualMachineInstanceBackupStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceBackupVolumeInfo {
    /// Name of the volume.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_name: String,
}

/// `changedBlockTracking` of [`crate::vm_status::VirtualMachineStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedBlockTrackingStatus {
    /// How far the tracking is.
    #[serde(deserialize_with = "null_as_default")]
    pub state: ChangedBlockTrackingState,
    /// The backup under way, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub backup_status: Option<VirtualMachineInstanceBackupStatus>,
}

open_enum! {
    /// Values of `state`.
    ChangedBlockTrackingState {
        Unset = "",
        PendingRestart = "PendingRestart",
        Initializing = "Initializing",
        Enabled = "Enabled",
        Disabled = "Disabled",
        IncrementalBackupFeatureGateDisabled = "IncrementalBackupFeatureGateDisabled",
    }
}
