//! Links, addresses, namespaces and nftables of the host, made over netlink without any program.
//!
//! [`in_namespace`] runs work on a thread of its own inside a network namespace and hands it a
//! [`Net`]: the network of that namespace. Its functions are of the kind "make it so": what is
//! there already stays, what differs is changed, what belongs to somebody else is an error.
//! [`plumb`] carries out a [`net_plan::Plumbing`].
//!
//! **Invariants**: no thread that changed its namespace ever does other work; every answer of the
//! kernel is waited for, for a bounded time; packet rules change all at once or not at all. This
//! crate must not know of VMs, pods or Kubernetes.

#![expect(
    unsafe_code,
    reason = "socket options, tap devices and namespaces have no safe calls"
)]

mod address;
mod bridge;
mod error;
mod given;
mod link;
mod namespace;
mod net;
mod netlink;
mod nft;
mod plumbing;
mod route;
mod sysctl;
mod tap;
mod veth;

pub use error::{NetError, Retry};
pub use link::{Link, LinkKind};
pub use namespace::{NetworkNamespace, in_namespace};
pub use net::Net;
pub use nft::BaseChain;
pub use plumbing::{Applied, observe_interface, plumb};
pub use route::Route;
pub use veth::Veth;
