//! The wire types of `KubeVirt`'s API.
//!
//! Invariants: names and shapes are exactly those of the wire; reading is tolerant (unknown
//! values in enumerations are kept, `null` lists are empty lists, missing required fields are empty)
//! so that one unexpected field never makes an object unreadable; absent fields stay absent when written.
//! "One of" groups are structs of options. There is no logic here: defaults and checks are
//! in `admission`, semantics in the domain crates.
//!
//! To add a field: put it into its struct, run `cargo xtask generate`, commit both.

pub mod access_credentials;
pub mod clock;
pub mod cluster_config;
pub mod data_volume;
pub mod devices;
pub mod disks;
pub mod domain;
pub mod features;
pub mod firmware;
pub mod kubevirt;
pub mod migration;
pub mod migration_request;
pub mod network;
pub mod preset;
pub mod replica_set;
pub mod vm;
pub mod vm_status;
pub mod vmi;
pub mod vmi_status;
pub mod volumes;

pub mod backup;
pub mod backup_restore;
pub mod clone;
pub mod export;
pub mod instancetype;
pub mod migration_policy;
pub mod plugin;
pub mod pool;
pub mod preference;
pub mod restore;
pub mod snapshot;

pub mod cdi_config;
pub mod data_import_cron;
pub mod data_source;
pub mod data_volume_status;
pub mod storage_profile;
pub mod upload;
pub mod volume_snapshot;

pub mod confidential;
pub mod guest_agent;
pub mod object_graph;
pub mod profiler;
pub mod subresource_bodies;
pub mod usage;

pub mod annotations;
pub mod conditions;
pub mod crds;
pub mod duration;
pub mod finalizers;
pub mod labels;
pub mod taints;
pub mod template;

mod every_kind;
mod number;
mod open_enum;
mod resource;
mod tolerant;

pub use ::quantity;
pub use kubevirt::KubeVirt;
pub use migration_request::VirtualMachineInstanceMigration;
pub use preset::VirtualMachineInstancePreset;
pub use replica_set::VirtualMachineInstanceReplicaSet;
pub use resource::{API_VERSION, COMPATIBLE_VERSION, GROUP, VERSION};
pub use vm::VirtualMachine;
pub use vmi::VirtualMachineInstance;

/// The interface of virt-handler's pods on the network for migrations.
pub const MIGRATION_INTERFACE: &str = "migration0";

/// User and group that a guest's processes run as.
pub const RUNTIME_USER: u32 = 107;
