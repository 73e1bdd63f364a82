//! What controller and handler report about a `VirtualMachineInstance`.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::api::resource::Quantity, apimachinery::pkg::apis::meta::v1::Time,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    domain::Machine, migration::VirtualMachineInstanceMigrationState, open_enum::open_enum,
    tolerant::null_as_default,
};

/// What is known about a run of a guest; written by controller and handler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceStatus {
    /// Node the guest runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Why the instance failed, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details of the state, one entry per type.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<VirtualMachineInstanceCondition>,
    /// How far the instance has come: Pending, Scheduling, Scheduled, Running, then Succeeded
    /// or Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineInstancePhase>,
    /// When each phase was entered.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub phase_transition_timestamps: Vec<VirtualMachineInstancePhaseTransitionTimestamp>,
    /// Network interfaces as seen on the host and by the guest agent.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    /// The guest's operating system, as its agent reports it.
    #[serde(rename = "guestOSInfo", skip_serializing_if = "Option::is_none")]
    pub guest_os_info: Option<VirtualMachineInstanceGuestOsInfo>,
    /// The latest migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_state: Option<VirtualMachineInstanceMigrationState>,
    /// `BlockMigration` (disks are copied too) or `LiveMigration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_method: Option<VirtualMachineInstanceMigrationMethod>,
    /// How source and target talk: Unix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_transport: Option<VirtualMachineInstanceMigrationTransport>,
    /// Quality of service class of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos_class: Option<String>,
    /// Image of the launcher that runs the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_container_image_version: Option<String>,
    /// Node the guest is to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuation_node_name: Option<String>,
    /// Pods of this instance, by UID, with their nodes.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub active_pods: BTreeMap<String, String>,
    /// State of each volume and its device name in the guest.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub volume_status: Vec<VolumeStatus>,
    /// Checksums of kernel and initial ramdisk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_boot_status: Option<KernelBootStatus>,
    /// frozen while the guest's filesystems are held still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_freeze_status: Option<String>,
    /// What nodes must offer for the guest to run alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_hints: Option<TopologyHints>,
    /// Copy of the VM's spec that the instance was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_revision_name: Option<String>,
    /// User id that the hypervisor runs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_user: Option<u64>,
    /// Address of the guest for VSOCK connections.
    #[serde(rename = "VSOCKCID", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0), extend("maximum" = u32::MAX)))]
    pub vsock_cid: Option<u32>,
    /// `SELinux` context of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// The machine type that is really in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// CPU topology the guest has now.
    #[serde(rename = "currentCPUTopology", skip_serializing_if = "Option::is_none")]
    pub current_cpu_topology: Option<CpuTopology>,
    /// Memory the guest has and is to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// Volumes whose data moves with the guest.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
    /// Whether disks keep track of changed blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub changed_block_tracking: Option<ChangedBlockTrackingStatus>,
}

/// `changedBlockTracking` of [`crate::vm_status::VirtualMachineStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedBlockTrackingStatus {
    /// How far the tracking is.
    pub state: ChangedBlockTrackingState,
    /// The backup under way, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub backup_status: Option<VirtualMachineInstanceBackupStatus>,
}

/// One aspect of the state of an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceCondition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: VirtualMachineInstanceConditionType,
    /// True, False or Unknown.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    pub status: String,
    /// Not in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_probe_time: Option<Time>,
    /// When status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_transition_time: Option<Time>,
    /// Why, in one word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// When a phase was entered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancePhaseTransitionTimestamp {
    /// The phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineInstancePhase>,
    /// When it was entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_transition_timestamp: Option<Time>,
}

/// `interfaces` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceNetworkInterface {
    /// First address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Name in the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// All addresses.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ip_addresses: Vec<String>,
    /// Name in the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_interface_name: Option<String>,
    /// Name in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_name: Option<String>,
    /// Who knows of it: domain, guest-agent, multus-status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info_source: Option<String>,
    /// Queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_count: Option<i32>,
    /// up or down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<String>,
}

/// `guestOSInfo` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceGuestOsInfo {
    /// Name of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Release of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
    /// Version of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Name and version for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretty_name: Option<String>,
    /// Version for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
    /// Build of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_version: Option<String>,
    /// Architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Name for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// `volumeStatus` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeStatus {
    /// Name of the volume.
    pub name: String,
    /// Device in the guest.
    pub target: String,
    /// How far the attaching of a hot-plugged volume is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VolumePhase>,
    /// Why it is in that phase, in one word.
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

/// `topologyHints` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyHints {
    /// Frequency of the time stamp counter, in Hz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsc_frequency: Option<i64>,
}

/// `currentCPUTopology` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CpuTopology {
    /// Cores in a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Threads in a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
}

/// `memory` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryStatus {
    /// Memory at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_at_boot: Option<Quantity>,
    /// Memory now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_current: Option<Quantity>,
    /// Memory that is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_requested: Option<Quantity>,
    /// Memory counted for the hypervisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overhead: Option<Quantity>,
}

/// `migratedVolumes` of [`VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StorageMigratedVolumeInfo {
    /// Name of the volume.
    pub volume_name: String,
    /// Claim that the data leaves.
    #[serde(rename = "sourcePVCInfo", skip_serializing_if = "Option::is_none")]
    pub source_pvc_info: Option<PersistentVolumeClaimInfo>,
    /// Claim that the data goes to.
    #[serde(rename = "destinationPVCInfo", skip_serializing_if = "Option::is_none")]
    pub destination_pvc_info: Option<PersistentVolumeClaimInfo>,
}

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

/// `volumes` of [`VirtualMachineInstanceBackupStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceBackupVolumeInfo {
    /// Name of the volume.
    pub volume_name: String,
}

open_enum! {
    /// How far an instance has come. Succeeded and Failed are final.
    VirtualMachineInstancePhase {
        Unset = "",
        Pending = "Pending",
        Scheduling = "Scheduling",
        Scheduled = "Scheduled",
        Running = "Running",
        Succeeded = "Succeeded",
        Failed = "Failed",
        WaitingForSync = "WaitingForSync",
        Unknown = "Unknown",
    }
}

open_enum! {
    /// Words of `migrationMethod`.
    VirtualMachineInstanceMigrationMethod {
        BlockMigration = "BlockMigration",
        LiveMigration = "LiveMigration",
    }
}

open_enum! {
    /// Words of `migrationTransport`.
    VirtualMachineInstanceMigrationTransport {
        Unix = "Unix",
    }
}

open_enum! {
    /// Words of `state`.
    ChangedBlockTrackingState {
        Unset = "",
        PendingRestart = "PendingRestart",
        Initializing = "Initializing",
        Enabled = "Enabled",
        Disabled = "Disabled",
        IncrementalBackupFeatureGateDisabled = "IncrementalBackupFeatureGateDisabled",
    }
}

open_enum! {
    /// Aspects of the state of an instance; the order is that of lists of conditions.
    VirtualMachineInstanceConditionType {
        Provisioning = "Provisioning",
        Ready = "Ready",
        Synchronized = "Synchronized",
        Paused = "Paused",
        AgentConnected = "AgentConnected",
        AccessCredentialsSynchronized = "AccessCredentialsSynchronized",
        AgentVersionNotSupported = "AgentVersionNotSupported",
        LiveMigratable = "LiveMigratable",
        HotVCPUChange = "HotVCPUChange",
        HotMemoryChange = "HotMemoryChange",
        VolumesChange = "VolumesChange",
        DataVolumesReady = "DataVolumesReady",
        StorageLiveMigratable = "StorageLiveMigratable",
        DecentralizedLiveMigrationFailure = "DecentralizedLiveMigrationFailure",
        MigrationRequired = "MigrationRequired",
        EvictionRequested = "EvictionRequested",
        SoftwareEmulation = "SoftwareEmulation",
    }
}

open_enum! {
    /// Words of `phase`.
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
