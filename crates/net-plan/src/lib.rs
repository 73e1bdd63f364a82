//! From a guest and the interfaces of its pod to the network between the two.
//!
//! [`plan()`] returns values: the links and rules for the pod's network namespace ([`Plumbing`], which
//! `host-net` applies), the DHCP servers for the launcher, the facts that the domain needs about each
//! interface, and the entries of the VMI's status.
//!
//! **Invariants**: pure; an error or a whole plan, never a part of one; names and rules are the same
//! as `KubeVirt`'s. This crate must not know netlink, namespaces, Kubernetes clients or libvirt's XML.

mod address;
mod bridge;
mod dhcp_options;
mod error;
mod guest_mac;
mod interface;
mod link_alias;
mod masquerade;
pub mod nft;
mod nft_text;
mod observed;
mod passt;
mod plan;
mod plugin;
mod plumbing;
mod reach;
mod resolv_conf;
mod unplumbing;

pub use address::{BadCidr, BadMacAddress, Cidr, MacAddress};
pub use bridge::port_name;
pub use error::PlanError;
pub use observed::{Observed, PodInterface, PodRoute};
pub use plan::{GuestInterface, Plan, plan, pod_interfaces};
pub use plugin::tap_candidates;
pub use plumbing::{Bridge, GivenInterface, Plumbing, SharedAddress, StandIn, Sysctl, Tap};
pub use reach::{Reach, reach};
pub use unplumbing::{Unplumbing, unplumbing};
