//! Status of a `VirtualMachineInstance`; virt-controller and virt-handler write it.

mod backup;
mod condition;
mod guest;
mod status;
mod volumes;

pub use backup::{
    ChangedBlockTrackingState, ChangedBlockTrackingStatus, VirtualMachineInstanceBackupStatus,
    VirtualMachineInstanceBackupVolumeInfo,
};
pub use condition::{VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType};
pub use guest::{
    CpuTopology, MemoryStatus, TopologyHints, VirtualMachineInstanceGuestOsInfo,
    VirtualMachineInstanceNetworkInterface,
};
pub use status::{
    VirtualMachineInstanceMigrationMethod, VirtualMachineInstanceMigrationTransport,
    VirtualMachineInstancePhase, VirtualMachineInstancePhaseTransitionTimestamp,
    VirtualMachineInstanceStatus,
};
pub use volumes::{
    ContainerDiskInfo, DomainMemoryDumpInfo, HotplugVolumeStatus, InitrdInfo, KernelBootStatus,
    KernelInfo, PersistentVolumeClaimInfo, StorageMigratedVolumeInfo, VolumePhase, VolumeStatus,
};
