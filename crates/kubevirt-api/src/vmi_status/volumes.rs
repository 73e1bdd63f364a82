//! Volumes and the files of a kernel boot.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::tolerant::null_as_default;

/// `volumeStatus` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeStatus {
    /// Name of the volume.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Device in the guest.
    #[serde(deserialize_with = "null_as_default")]
    pub target: String,
    /// How far the attaching of a hot-plugged volume is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VolumePhase>,
    /// Reason of that phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it is in that phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The claim below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_info: Option<PersistentVolumeClaimInfo>,
    /// The pod that brings a hot-plugged volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotplug_volume: Option<HotplugVolumeStatus>,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The last memory dump on the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_dump_volume: Option<DomainMemoryDumpInfo>,
    /// The container disk below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_disk_volume: Option<ContainerDiskInfo>,
}

open_enum! {
    /// Values of `phase`.
    VolumePhase {
        Pending = "Pending",
        Bound = "Bound",
        AttachedToNode = "AttachedToNode",
        MountedToPod = "MountedToPod",
        Ready = "Ready",
        Detaching = "Detaching",
        UnMountedFromPod = "UnMountedFromPod",
        MemoryDumpCompleted = "MemoryDumpCompleted",
        MemoryDumpInProgress = "MemoryDumpInProgress",
        MemoryDumpFailed = "MemoryDumpFailed",
    }
}

/// `persistentVolumeClaimInfo` of [`VolumeStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimInfo {
    /// Name of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// How it may be mounted.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub access_modes: Vec<String>,
    /// Block or Filesystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
    /// Size it has.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub capacity: BTreeMap<String, Quantity>,
    /// Size that was asked for.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub requests: BTreeMap<String, Quantity>,
    /// Whether all blocks were written at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocated: Option<bool>,
    /// Part of the size that its filesystem takes, as a fraction of 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = r"^(0(?:\.\d{1,3})?|1)$")))]
    pub filesystem_overhead: Option<String>,
}

/// `hotplugVolume` of [`VolumeStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HotplugVolumeStatus {
    /// Name of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach_pod_name: Option<String>,
    /// UID of the pod.
    #[serde(rename = "attachPodUID", skip_serializing_if = "Option::is_none")]
    pub attach_pod_uid: Option<String>,
}

/// `memoryDumpVolume` of [`VolumeStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DomainMemoryDumpInfo {
    /// When the dump began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When the dump ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    /// Claim it went to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// File on the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_file_name: Option<String>,
}

/// `containerDiskVolume` of [`VolumeStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerDiskInfo {
    /// Checksum of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0), extend("maximum" = u32::MAX)))]
    pub checksum: Option<u32>,
}

/// `migratedVolumes` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StorageMigratedVolumeInfo {
    /// Name of the volume.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_name: String,
    /// Claim that the data leaves.
    #[serde(rename = "sourcePVCInfo", skip_serializing_if = "Option::is_none")]
    pub source_pvc_info: Option<PersistentVolumeClaimInfo>,
    /// Claim that the data goes to.
    #[serde(rename = "destinationPVCInfo", skip_serializing_if = "Option::is_none")]
    pub destination_pvc_info: Option<PersistentVolumeClaimInfo>,
}

/// `kernelBootStatus` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KernelBootStatus {
    /// The kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_info: Option<KernelInfo>,
    /// The initial ramdisk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd_info: Option<InitrdInfo>,
}

/// `kernelInfo` of [`KernelBootStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KernelInfo {
    /// Checksum of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0), extend("maximum" = u32::MAX)))]
    pub checksum: Option<u32>,
}

/// `initrdInfo` of [`KernelBootStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InitrdInfo {
    /// Checksum of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0), extend("maximum" = u32::MAX)))]
    pub checksum: Option<u32>,
}
