//! Migrations of guests from and to this node, and from one pod of it to another.
//!
//! The two launchers direct a migration; the virt-handlers prepare the pods, carry bytes between them
//! and report on the VMI.
//!
//! - `plan` decides the next step of this node from the VMI and the report of the pod's launcher;
//! - `figures` are the metrics of copies;
//! - `flows` decides through how many connections the memory flows, and whether it is packed;
//! - `network` finds the address for the carriage;
//! - `limits` finds copies that take too long;
//! - `progress` shows on the VMI how far a copy is;
//! - `carriage` listens in the pod that the guest leaves and carries its connections to the other node, or
//!   to the other pod of this node;
//! - `endpoint` accepts them on another node.
//!
//! **Invariants**: before the guest is in the other pod, only the old pod's node reports its end; bytes are
//! carried only from the node and for the migration that virt-controller has published on the VMI; no
//! byte of a guest is interpreted.

mod act;
mod carriage;
mod endpoint;
#[cfg(test)]
mod failpoints;
mod figures;
mod flows;
mod limits;
mod network;
mod plan;
mod progress;
#[cfg(test)]
mod tests;

pub(crate) use carriage::Migrations;
pub(crate) use endpoint::router;
pub(crate) use network::has_joined as has_joined_network;
pub(crate) use plan::awaits_take_over;
pub(crate) use progress::set as set_progress;

/// The protocol of an upgrade that carries bytes between two pods.
const PROTOCOL: &str = "ferrovirt-migration";
/// The volume of a pod with the sockets of its launcher.
const SOCKETS: &str = "sockets";
