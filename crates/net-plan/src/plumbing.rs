//! Links, addresses and rules for a pod's network namespace, in the order of their creation.

use crate::{Cidr, MacAddress, nft};

/// The network that has to exist before the guest starts. Applying it is idempotent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plumbing {
    pub bridges: Vec<Bridge>,
    pub given: Vec<GivenInterface>,
    pub taps: Vec<Tap>,
    pub shared_addresses: Vec<SharedAddress>,
    pub sysctls: Vec<Sysctl>,
    /// Only the chains of these tables are replaced; other chains in a table of the same name stay.
    pub tables: Vec<nft::Table>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    pub name: String,
    pub mac: MacAddress,
    pub mtu: u32,
    pub addresses: Vec<Cidr>,
}

/// An interface of the pod that is handed to the guest: it is renamed, loses its addresses and becomes
/// a port of a bridge.
///
/// A link that stays down stands in for it, so that other programs in the pod still find the name and
/// the addresses of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenInterface {
    /// Its own name, which the stand-in takes over.
    pub name: String,
    /// Its name as a port.
    pub renamed: String,
    pub bridge: String,
    /// Its hardware address as a port; the guest takes over its own.
    pub mac: MacAddress,
    /// The observed state of the interface, which the kernel keeps as the alias of the link: after a
    /// crash in the middle of the handover, the plan is made from the alias.
    pub alias: String,
    pub stand_in: StandIn,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    pub mac: MacAddress,
    pub mtu: u32,
    pub addresses: Vec<Cidr>,
}

/// A hardware address that the guest and a port of its bridge share: frames to it leave the bridge by
/// the tap. Without this the bridge would keep them for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAddress {
    pub mac: MacAddress,
    pub port: String,
    pub tap: String,
}

/// A tap device that an unprivileged owner may open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tap {
    pub name: String,
    /// The bridge that it is a port of.
    pub bridge: String,
    pub mtu: u32,
    /// User and group id of its owner.
    pub owner: u32,
    /// More than one makes it a multi-queue device.
    pub queues: u32,
}

/// A setting under `/proc/sys`. Its name is separated by `/`, since interface names may contain dots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    pub name: String,
    pub value: String,
}
