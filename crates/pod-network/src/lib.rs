//! A network for the pods of one host: a bridge with the gateway's address, a veth pair per pod,
//! addresses from one range, and source address translation for outgoing traffic.
//!
//! [`PodNetwork`] returns results in the format of a CNI plugin ([`CniResult`]). Several networks can
//! exist on one host, each with its own bridge, range, nftables tables and state folder.
//!
//! **Invariants**: an address is on disk before it is used and never used twice; every function may
//! be interrupted and called again; `teardown` leaves only the kernel's IP forwarding enabled. This
//! crate must not know of VMs, Kubernetes objects or containers.

mod cni;
mod error;
mod forward;
mod ipv6;
mod lease;
mod links;
mod masquerade;
mod network;
mod policies;
mod secondary;
mod senders;
mod services;
mod settings;

pub use cni::{CniDns, CniInterface, CniIp, CniResult, CniRoute};
pub use error::PodNetworkError;
pub use net_plan::MacAddress;
pub use net_plan::{Cidr, nft::Transport};
pub use network::PodNetwork;
pub use policies::{Allowed, Connections, Ports, Restriction};
pub use secondary::{Attachment, Definition, DefinitionError};
pub use services::{Choice, Forward, Front, Protocol, ServiceRange};
pub use settings::Settings;
