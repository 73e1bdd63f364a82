//! What controllers report about a `VirtualMachine`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    open_enum::open_enum,
    subresource_bodies::{AddVolumeOptions, RemoveVolumeOptions},
    tolerant::null_as_default,
    vm::{InferFromVolumeFailurePolicy, VirtualMachineRunStrategy},
    vmi_status::{ChangedBlockTrackingStatus, StorageMigratedVolumeInfo},
};

/// `VirtualMachineStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_in_progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_in_progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = "Stopped")))]
    pub printable_status: Option<VirtualMachinePrintableStatus>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<VirtualMachineCondition>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub state_change_requests: Vec<VirtualMachineStateChangeRequest>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub volume_requests: Vec<VirtualMachineVolumeRequest>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub start_failure: Option<VirtualMachineStartFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub memory_dump_request: Option<VirtualMachineMemoryDumpRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<VirtualMachineRunStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_update_state: Option<VolumeUpdateState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub changed_block_tracking: Option<ChangedBlockTrackingStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub instancetype_ref: Option<InstancetypeStatusRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub preference_ref: Option<InstancetypeStatusRef>,
}

/// `VirtualMachineCondition`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineCondition {
    #[serde(rename = "type")]
    pub type_: VirtualMachineConditionType,
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_probe_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_transition_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `VirtualMachineStateChangeRequest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStateChangeRequest {
    pub action: StateChangeRequestAction,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub data: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// `VirtualMachineVolumeRequest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineVolumeRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_volume_options: Option<AddVolumeOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_volume_options: Option<RemoveVolumeOptions>,
}

/// `VolumeSnapshotStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    pub name: String,
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `VirtualMachineStartFailure`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStartFailure {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_fail_count: Option<i64>,
    #[serde(rename = "lastFailedVMIUID", skip_serializing_if = "Option::is_none")]
    pub last_failed_vmi_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_timestamp: Option<Time>,
}

/// `VirtualMachineMemoryDumpRequest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineMemoryDumpRequest {
    pub claim_name: String,
    pub phase: MemoryDumpPhase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `VolumeUpdateState`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeUpdateState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_migration_state: Option<VolumeMigrationState>,
}

/// `InstancetypeStatusRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeStatusRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_revision_ref: Option<ControllerRevisionRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

/// `VolumeMigrationState`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMigrationState {
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
}

/// `ControllerRevisionRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerRevisionRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

open_enum! {
    /// Values of `VirtualMachinePrintableStatus`.
    VirtualMachinePrintableStatus {
        Stopped = "Stopped",
        Provisioning = "Provisioning",
        Starting = "Starting",
        Running = "Running",
        Paused = "Paused",
        Stopping = "Stopping",
        Terminating = "Terminating",
        CrashLoopBackOff = "CrashLoopBackOff",
        Migrating = "Migrating",
        Unknown = "Unknown",
        ErrorUnschedulable = "ErrorUnschedulable",
        ErrImagePull = "ErrImagePull",
        ImagePullBackOff = "ImagePullBackOff",
        ErrorPvcNotFound = "ErrorPvcNotFound",
        DataVolumeError = "DataVolumeError",
        WaitingForVolumeBinding = "WaitingForVolumeBinding",
        WaitingForReceiver = "WaitingForReceiver",
    }
}

open_enum! {
    /// Values of `VirtualMachineConditionType`.
    VirtualMachineConditionType {
        Failure = "Failure",
        Ready = "Ready",
        Paused = "Paused",
        RestartRequired = "RestartRequired",
        ManualRecoveryRequired = "ManualRecoveryRequired",
    }
}

open_enum! {
    /// Values of `StateChangeRequestAction`.
    StateChangeRequestAction {
        Start = "Start",
        Stop = "Stop",
    }
}

open_enum! {
    /// Values of `MemoryDumpPhase`.
    MemoryDumpPhase {
        Associating = "Associating",
        InProgress = "InProgress",
        Unmounting = "Unmounting",
        Completed = "Completed",
        Dissociating = "Dissociating",
        Failed = "Failed",
    }
}
