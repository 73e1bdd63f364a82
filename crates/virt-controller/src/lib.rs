//! The reconcilers from VM to VMI to pod.
//!
//! Small controllers that talk through objects only: `vm` makes and removes the VMI of a VM and
//! reports on the VM; `vmi` makes and removes the pod of a VMI and carries the VMI from Pending
//! to Scheduled, where the node's handler takes over; `replica_set` keeps a number of VMIs;
//! `node` tells when a node is lost. Of many processes one works, by a lease.
//!
//! **Invariants**: at most two writes to a VMI per start, none when nothing changed; every write
//! is an apply under [`MANAGER`] that fails when what it was based on has changed; children have
//! names that follow from their owner, so that none is ever made twice.
//!
//! It must not know how a guest is run, nor which kind of API server answers.

mod caches;
mod container_disks;
mod node;
mod replica_set;
mod run;
mod view;
mod vm;
mod vmi;

pub use run::{AccelerationPolicy, Settings, run};

/// The field manager of all writes.
pub const MANAGER: &str = "virt-controller";
