//! The domain model: a VMI parsed once into closed enums and plain values.
//!
//! The wire types are structs of options that keep what they do not know. [`Guest::of`] reads them
//! once; every crate that asks "which kind of volume, disk, interface is this?" matches on the
//! enums here, so a new variant makes the compiler name each place that has to handle it.
//! [`Supported`] is a guest whose every field can be run by this version ([`unsupported`] has the
//! one list); the renderers take nothing else.
//!
//! **Invariants**: pure; parsing never fails (what is missing or unknown has a variant of its own);
//! no type here can be serialized but [`BindingPlugin`], which a pod keeps. It must not know pods, libvirt or the API server: it
//! describes a guest, not how to run it.

pub mod paths;
pub mod unsupported;

mod allocated_devices;
mod arrival;
mod backup;
mod binding_plugin;
mod bootloader;
mod claimed_device;
mod cpu;
mod credential;
mod decentralized;
mod disk;
mod filesystem;
mod growth;
mod guest;
mod hook_sidecar;
mod host_device;
mod interface;
mod kept_state;
mod key_filters;
mod migration;
mod pci_address;
mod resources;
mod size;
mod volume;
mod volume_migration;

pub use allocated_devices::{
    AllocatedDevices, DeviceAddress, InvalidAllocation, MediatedUuid, UsbAddress,
};
pub use arrival::has_arrived;
pub use backup::{
    MAX_CHECKPOINTS, backed_up_volumes, backup_directory, backup_volume, is_backup_volume,
    kept_checkpoints, last_backup, offers_disks, requested_checkpoint,
};
pub use binding_plugin::{
    Attachment, BindingPlugin, BindingPlugins, RegisteredBindings, registered_bindings,
};
pub use bootloader::Bootloader;
pub use claimed_device::{
    InvalidMetadata, METADATA_DIRECTORY, METADATA_SUFFIX, claimed_device, metadata_directory,
};
pub use cpu::{Architecture, CpuModel, Topology, needs_fixed_tsc};
pub use credential::{Credential, Propagation};
pub use decentralized::{
    MigrationEnd, SYNCHRONIZATION_ADDRESS, awaits_guest, copy_id, has_come, has_departed,
    is_decentralized, may_have_departed, migration_end, written_claims,
};
pub use disk::{Bus, Device, Disk, Target};
pub use filesystem::{Filesystem, SharedDirectory};
pub use growth::{Growth, MEMORY_CHANGED};
pub use guest::Guest;
pub use hook_sidecar::{
    HookClaim, HookScript, HookSidecar, InvalidHookSidecars, MAX_HOOK_SIDECARS,
};
pub use host_device::{DeviceSource, Display, HostDevice, HostDeviceList};
pub use interface::{
    Binding, Interface, LinkState, MAX_QUEUES, Network, PRIMARY_POD_INTERFACE, definition_key,
    pod_interface_name,
};
pub use kept_state::{KeptState, Tpm};
pub use key_filters::{InvalidFilter, KeyFilters};
pub use migration::{has_moved, is_under_way, is_within_node};
pub use pci_address::PciAddress;
pub use resources::{InvalidQuantity, ResourceList};
pub use size::{GuestSize, lacks_memory, lacks_processors, memory_at_start};
pub use unsupported::{Supported, Unsupported};
pub use volume::{
    Claim, CloudInit, CloudInitFormat, FILES_LABEL, Files, HostDisk, HostFile, HostFileCreation,
    HostPathError, Reference, Referenced, SAVED_STATE_VOLUME, SAVING_VOLUME, SeedData, SeedPart,
    Storage, Volume, VolumeSource,
};
pub use volume_migration::{
    VolumeMove, VolumeMoves, carried_volumes, moves_in, moves_of_pod, pod_annotation,
    put_on_new_claims, volume_moves, volumes_arrived,
};
