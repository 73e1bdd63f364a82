//! The controllers from VM to VMI to pod.
//!
//! Small controllers that communicate through objects only: `vm` creates and deletes the VMI of a
//! VM and writes the status of the VM; `vmi` creates and deletes the pod of a VMI and takes the VMI
//! from Pending to Scheduled, where virt-handler takes over; `replica_set` keeps a number of VMIs, `pool` a number of VMs;
//! `node` detects lost nodes and labels nodes with frequencies of the time stamp counter; `migration`
//! moves running guests to other nodes; `data_volume` populates claims, `data_source` says which can be copied,
//! `storage_profile` how they are claimed; `hotplug` brings volumes to running
//! guests; `snapshot` copies the definition and disks of a VM, `restore` brings them back, `clone` makes another
//! VM through both, `export` offers disks for download, `backup`
//! copies the disks of a running guest to a claim, and `backup_restore` fills claims with them;
//! `template_request` makes templates of VMs, and `template` reports that they can be used. One of several processes is active, elected by a lease.
//!
//! **Invariants**: at most two writes to a VMI per start, none when nothing changed; every write
//! is an apply under [`MANAGER`] that fails when its base has changed; the names of children follow
//! from their owner, so that none is ever created twice.
//!
//! It must not know how a guest is run, nor which API server responds.

mod backup;
mod backup_restore;
mod caches;
mod clone;
mod container_disks;
mod data_source;
mod data_volume;
mod expansion;
mod export;
mod gate;
mod hotplug;
mod merge_patch;
mod metrics;
mod migration;
mod node;
mod operation;
mod pool;
mod replica_set;
mod restore;
mod run;
mod snapshot;
mod storage_profile;
mod subresources;
mod template;
mod template_request;
mod tsc;
mod view;
mod vm;
mod vmi;
mod wiring;

pub use cluster_view::Configuration;
pub use export::{ExportPlace, ExportProxy};
pub use metrics::METRICS;
pub use run::{AccelerationPolicy, CopyRights, Settings, Uploads, run};

/// The field manager of all writes.
pub const MANAGER: &str = "virt-controller";
