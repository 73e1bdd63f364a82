//! The status and the phases.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backup::ChangedBlockTrackingStatus;
use super::condition::VirtualMachineInstanceCondition;
use super::guest::{
    CpuTopology, MemoryStatus, TopologyHints, VirtualMachineInstanceGuestOsInfo,
    VirtualMachineInstanceNetworkInterface,
};
use super::volumes::{KernelBootStatus, StorageMigratedVolumeInfo, VolumeStatus};
use crate::domain::Machine;
use crate::migration::VirtualMachineInstanceMigrationState;
use crate::open_enum::open_enum;
use crate::tolerant::null_as_default;

/// Observed state of a run of a guest; written by controller and handler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceStatus {
    /// Node the guest runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Reason why the VMI failed.
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
    /// The effective machine type.
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

open_enum! {
    /// Values of `migrationMethod`.
    VirtualMachineInstanceMigrationMethod {
        BlockMigration = "BlockMigration",
        LiveMigration = "LiveMigration",
    }
}

open_enum! {
    /// Values of `migrationTransport`.
    VirtualMachineInstanceMigrationTransport {
        Unix = "Unix",
    }
}
