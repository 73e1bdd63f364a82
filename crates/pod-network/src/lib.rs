//! A network for the pods of one host: a bridge with the gateway's address, a veth pair for each
//! pod, addresses from one range, and translation on the way out.
//!
//! [`PodNetwork`] answers as a CNI plugin would ([`CniResult`]). Several of them live side by side
//! on a host, with bridges, ranges, tables and state folders of their own.
//!
//! **Invariants**: an address is on disk before it is used and is never used twice; every function
//! may be cut off and called again; `teardown` leaves nothing but the kernel's forwarding switch.
//! This crate must not know of VMs, Kubernetes objects or containers.

mod cni;
mod error;
mod forward;
mod lease;
mod network;
mod services;
mod settings;

pub use cni::{CniDns, CniInterface, CniIp, CniResult, CniRoute};
pub use error::PodNetworkError;
pub use network::PodNetwork;
pub use services::{Forward, Protocol, ServiceRange};
pub use settings::Settings;
