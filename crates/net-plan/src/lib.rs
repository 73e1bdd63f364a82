//! From a VMI and the interface its pod got to everything that joins the two.
//!
//! [`plan()`] reads the VMI once and answers with values: what to make in the pod's network
//! namespace ([`Plumbing`], carried out by `host-net`), the DHCP servers for the launcher, the
//! facts that the domain needs about each interface, and the status entries.
//!
//! **Invariants**: pure; a VMI that cannot be plumbed gives an error and no half of a plan; every
//! name and rule is the one that users of `KubeVirt` find in a pod. This crate must not know
//! netlink, namespaces, Kubernetes clients or libvirt's XML.

mod address;
mod bridge;
mod error;
mod masquerade;
pub mod nft;
mod nft_text;
mod observed;
mod plan;
mod plumbing;
mod remark;
mod resolv_conf;

pub use address::{BadCidr, BadMacAddress, Cidr, MacAddress};
pub use bridge::port_name;
pub use error::PlanError;
pub use observed::{Observed, PodInterface, PodRoute};
pub use plan::{GuestInterface, LinkState, Plan, plan};
pub use plumbing::{Bridge, GivenInterface, Plumbing, StandIn, Sysctl, Tap};
