//! Links, addresses, namespaces and nftables of the host, configured over netlink without external
//! programs.
//!
//! [`in_namespace`] runs a closure on a dedicated thread inside a network namespace and passes it a
//! [`Net`], the network of that namespace. The functions named `ensure_*` are idempotent: they keep
//! what already matches, change what differs, and fail on objects of other programs. [`plumb`]
//! applies a [`net_plan::Plumbing`], and [`unplumb`] takes the links of one interface away. [`connect_vsock`]
//! connects to a guest without a network, and a [`VsockListener`] accepts connections of guests.
//!
//! **Invariants**: a thread that entered a namespace never does other work; every request waits for
//! the kernel's response, for a bounded time; packet rules change atomically. This crate must not
//! know of VMs, pods or Kubernetes.

#![expect(
    unsafe_code,
    reason = "socket options, tap devices and namespaces have no safe wrappers"
)]

mod address;
mod bridge;
mod error;
mod forwarding;
mod handover;
mod ipv6;
mod link;
mod macvlan;
mod namespace;
mod net;
mod netlink;
mod nft;
mod plumbing;
mod route;
mod sysctl;
mod tap;
mod veth;
mod vlan;
mod vsock;

pub use bridge::SharedBridge;
pub use error::NetError;
pub use link::{Link, LinkKind};
pub use macvlan::{Macvlan, MacvlanMode};
pub use namespace::{NetworkNamespace, in_namespace};
pub use net::Net;
pub use nft::BaseChain;
pub use plumbing::{Applied, observe_interface, plumb, unplumb};
pub use route::Route;
pub use veth::{Veth, VethPair};
pub use vlan::PortVlan;
pub use vsock::{VsockListener, connect_vsock};
