//! Status of a `VirtualMachine`; virt-controller writes it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition,
    open_enum::open_enum,
    subresource_bodies::{AddVolumeOptions, RemoveVolumeOptions},
    tolerant::null_as_default,
    vm::{InferFromVolumeFailurePolicy, VirtualMachineRunStrategy},
    vmi_status::{ChangedBlockTrackingStatus, StorageMigratedVolumeInfo},
};

/// Observed state of a VM; written by controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStatus {
    /// Name of the snapshot that is being taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_in_progress: Option<String>,
    /// Name of the restore that is going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_in_progress: Option<String>,
    /// Whether an instance exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    /// Whether the guest runs and is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// State of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = "Stopped")))]
    pub printable_status: Option<VirtualMachinePrintableStatus>,
    /// Details of the state, one entry per type.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<VirtualMachineCondition>,
    /// Start and stop requests that wait to be carried out, in order.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub state_change_requests: Vec<VirtualMachineStateChangeRequest>,
    /// Volumes to attach or take away, in order.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub volume_requests: Vec<VirtualMachineVolumeRequest>,
    /// Which volumes a snapshot can take.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
    /// Present while starts keep failing; has the time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub start_failure: Option<VirtualMachineStartFailure>,
    /// The memory dump under way, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub memory_dump_request: Option<VirtualMachineMemoryDumpRequest>,
    /// Generation of the spec that the controller has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Generation of the spec that should be in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_generation: Option<i64>,
    /// The run strategy in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<VirtualMachineRunStrategy>,
    /// How far a replacement of volumes is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_update_state: Option<VolumeUpdateState>,
    /// Whether disks keep track of changed blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub changed_block_tracking: Option<ChangedBlockTrackingStatus>,
    /// The instance type in use, with the copy that is kept of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub instancetype_ref: Option<InstancetypeStatusRef>,
    /// The preference in use, with the copy that is kept of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub preference_ref: Option<InstancetypeStatusRef>,
}

/// One aspect of the state of a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineCondition {
    /// What it is about.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: VirtualMachineConditionType,
    /// True, False or Unknown.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// Not in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_probe_time: Option<Time>,
    /// When status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_transition_time: Option<Time>,
    /// Reason as a stable CamelCase name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

condition!(VirtualMachineCondition, VirtualMachineConditionType);

/// A start or stop that a user requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStateChangeRequest {
    /// What to do.
    #[serde(deserialize_with = "null_as_default")]
    pub action: StateChangeRequestAction,
    /// Options, such as paused.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub data: BTreeMap<String, String>,
    /// The instance that should be stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// `volumeRequests` of [`VirtualMachineStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineVolumeRequest {
    /// A volume to attach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_volume_options: Option<AddVolumeOptions>,
    /// A volume to take away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_volume_options: Option<RemoveVolumeOptions>,
}

/// `volumeSnapshotStatuses` of [`VirtualMachineStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    /// Name of the volume.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Whether a snapshot takes it.
    #[serde(deserialize_with = "null_as_default")]
    pub enabled: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How often starts failed in a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStartFailure {
    /// Failed starts in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_fail_count: Option<i64>,
    /// UID of the instance that failed last.
    #[serde(rename = "lastFailedVMIUID", skip_serializing_if = "Option::is_none")]
    pub last_failed_vmi_uid: Option<String>,
    /// When the next try is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_timestamp: Option<Time>,
}

/// `memoryDumpRequest` of [`VirtualMachineStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineMemoryDumpRequest {
    /// Claim that the dump goes to.
    #[serde(deserialize_with = "null_as_default")]
    pub claim_name: String,
    /// How far the dump is.
    #[serde(deserialize_with = "null_as_default")]
    pub phase: MemoryDumpPhase,
    /// Whether the claim is to be released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<bool>,
    /// When the dump began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When the dump ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    /// File on the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `volumeUpdateState` of [`VirtualMachineStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeUpdateState {
    /// Volumes whose data is being copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_migration_state: Option<VolumeMigrationState>,
}

/// `instancetypeRef` of [`VirtualMachineStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeStatusRef {
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kind: in the namespace, or of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The copy that is kept of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_revision_ref: Option<ControllerRevisionRef>,
    /// Volume whose labels named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    /// What happens when they name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

/// `volumeMigrationState` of [`VolumeUpdateState`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMigrationState {
    /// The volumes.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
}

/// `controllerRevisionRef` of [`InstancetypeStatusRef`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerRevisionRef {
    /// Name of the revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

open_enum! {
    /// State of a VM.
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
    /// Aspects of the state of a VM; the order is that of lists of conditions.
    VirtualMachineConditionType {
        Failure = "Failure",
        Ready = "Ready",
        Paused = "Paused",
        RestartRequired = "RestartRequired",
        ManualRecoveryRequired = "ManualRecoveryRequired",
    }
}

open_enum! {
    /// What a state change request asks for.
    StateChangeRequestAction {
        Start = "Start",
        Stop = "Stop",
    }
}

open_enum! {
    /// Values of `phase`.
    MemoryDumpPhase {
        Associating = "Associating",
        InProgress = "InProgress",
        Unmounting = "Unmounting",
        Completed = "Completed",
        Dissociating = "Dissociating",
        Failed = "Failed",
    }
}
