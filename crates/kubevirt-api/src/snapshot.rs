//! Snapshots of VMs and their contents (`snapshot.kubevirt.io`).
//!
//! v1alpha1 is served with the schema of v1beta1; objects of v1alpha1 do not have its newer
//! fields. Restores are in `restore`.

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaimSpec, TypedLocalObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition, duration::Duration, open_enum::open_enum, resource::kind,
    tolerant::null_as_default, vm::VirtualMachineSpec, vm_status::VirtualMachineStatus,
};

/// A copy of a VM's definition and disks as of one moment, kept under a name; a
/// `VirtualMachineRestore` brings it back.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSnapshot {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineSnapshotSpec,
    pub status: Option<VirtualMachineSnapshotStatus>,
}

kind!(VirtualMachineSnapshot {
    group: "snapshot.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachinesnapshots",
    scope: NamespaceResourceScope,
    spec: VirtualMachineSnapshotSpec,
    status: VirtualMachineSnapshotStatus,
});

/// Which VM to copy and how; fixed once the snapshot is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSnapshotSpec {
    /// The VM: apiGroup `kubevirt.io`, kind `VirtualMachine` and its name, in the namespace of the
    /// snapshot.
    #[serde(deserialize_with = "null_as_default")]
    pub source: TypedLocalObjectReference,
    /// What deleting this object does to the copied data: Delete (the default) removes it, Retain
    /// keeps the content object and its volume snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// How long the snapshot may take before it counts as failed, such as 10m; 5m when unset, 0 for
    /// no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_deadline: Option<Duration>,
}

/// How far a snapshot has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSnapshotStatus {
    /// UID of the VM that was copied.
    #[serde(rename = "sourceUID", skip_serializing_if = "Option::is_none")]
    pub source_uid: Option<String>,
    /// Content object that holds the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_snapshot_content_name: Option<String>,
    /// When the copy was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub creation_time: Option<Time>,
    /// Phase of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineSnapshotPhase>,
    /// True once a restore can start from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The last thing that went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    /// Ready, Progressing and Failure.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub conditions: Vec<Condition>,
    /// In what state the guest was caught.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "set")))]
    pub indications: Vec<Indication>,
    /// The same with a sentence for each.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub source_indications: Vec<SourceIndication>,
    /// Which volumes are in the copy and which could not be copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_volumes: Option<SnapshotVolumesLists>,
}

/// Volumes of the VM, sorted by whether the snapshot has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotVolumesLists {
    /// Volumes in the copy.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "set")))]
    pub included_volumes: Vec<String>,
    /// Volumes whose storage cannot make snapshots.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "set")))]
    pub excluded_volumes: Vec<String>,
}

/// One remark on the state in which the guest was caught.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SourceIndication {
    /// The indication.
    #[serde(deserialize_with = "null_as_default")]
    pub indication: Indication,
    /// What it means, for people.
    #[serde(deserialize_with = "null_as_default")]
    pub message: String,
}

/// What went wrong last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Error {
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One statement on a snapshot or a restore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Ready, Progressing or Failure.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: ConditionType,
    /// True, False or Unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// When it was last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_probe_time: Option<Time>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_transition_time: Option<Time>,
    /// Stable CamelCase name for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

condition!(Condition, ConditionType);

/// The copy behind a snapshot: the VM's definition and one volume snapshot for each of its disks.
/// Made by the controller.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSnapshotContent {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineSnapshotContentSpec,
    pub status: Option<VirtualMachineSnapshotContentStatus>,
}

kind!(VirtualMachineSnapshotContent {
    group: "snapshot.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachinesnapshotcontents",
    scope: NamespaceResourceScope,
    spec: VirtualMachineSnapshotContentSpec,
    status: VirtualMachineSnapshotContentStatus,
});

/// Copied objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSnapshotContentSpec {
    /// Snapshot that this belongs to; empty when it was retained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_snapshot_name: Option<String>,
    /// The definition as it was.
    #[serde(deserialize_with = "null_as_default")]
    pub source: SourceSpec,
    /// The disks that were copied.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub volume_backups: Vec<VolumeBackup>,
}

/// The object that was copied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SourceSpec {
    /// A VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<VirtualMachine>,
}

/// A VM inside a snapshot's content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachine {
    /// Metadata as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true), extend("nullable" = true)))]
    pub metadata: Option<ObjectMeta>,
    /// Spec of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<VirtualMachineSpec>,
    /// How the VM was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<VirtualMachineStatus>,
}

/// One disk of the copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeBackup {
    /// Volume of the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_name: String,
    /// The claim at the time of the snapshot, from which it is created again.
    #[serde(deserialize_with = "null_as_default")]
    pub persistent_volume_claim: PersistentVolumeClaim,
    /// `VolumeSnapshot` that holds the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_name: Option<String>,
}

/// A claim inside a snapshot's content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaim {
    /// Metadata as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true)))]
    pub metadata: Option<ObjectMeta>,
    /// Request to the storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<PersistentVolumeClaimSpec>,
}

/// How far the copies of the disks have come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSnapshotContentStatus {
    /// When the copy was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub creation_time: Option<Time>,
    /// True once all volume snapshots can be restored from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The last thing that went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    /// Each volume snapshot.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub volume_snapshot_status: Vec<VolumeSnapshotStatus>,
}

/// How far the copy of one disk has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    /// Name of the `VolumeSnapshot`.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_snapshot_name: String,
    /// When it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub creation_time: Option<Time>,
    /// True once it can be restored from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The last thing that went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
}

open_enum! {
    /// What happens to the copied data when the snapshot object goes.
    DeletionPolicy {
        Delete = "Delete",
        Retain = "Retain",
    }
}

open_enum! {
    /// In what state a guest was caught.
    Indication {
        Online = "Online",
        NoGuestAgent = "NoGuestAgent",
        GuestAgent = "GuestAgent",
        QuiesceTimeout = "QuiesceTimeout",
        Paused = "Paused",
        PartialSnapshot = "PartialSnapshot",
    }
}

open_enum! {
    /// Phases of a snapshot.
    VirtualMachineSnapshotPhase {
        Unset = "",
        InProgress = "InProgress",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Deleting = "Deleting",
        Unknown = "Unknown",
    }
}

open_enum! {
    /// Types of conditions of snapshots and restores.
    ConditionType {
        Ready = "Ready",
        Progressing = "Progressing",
        Failure = "Failure",
    }
}
