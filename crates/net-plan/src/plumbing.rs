//! What to make inside a pod's network namespace, in the order it is made.

use crate::{Cidr, MacAddress, nft};

/// Everything to be there before the guest starts. Making it twice is the same as once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plumbing {
    pub bridges: Vec<Bridge>,
    pub given: Vec<GivenInterface>,
    pub taps: Vec<Tap>,
    pub sysctls: Vec<Sysctl>,
    /// Chains of these tables; chains of other owners in a table of the same name stay.
    pub tables: Vec<nft::Table>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    pub name: String,
    pub mac: MacAddress,
    pub mtu: u32,
    pub addresses: Vec<Cidr>,
}

/// An interface of the pod that is given to the guest: it becomes a port of a bridge under another
/// name and has no addresses any more.
///
/// A link that stays down stands in for it, so that who looks for the interface by its name or its
/// addresses finds what it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenInterface {
    /// Its own name, which the stand-in has later.
    pub name: String,
    /// Its name as a port.
    pub renamed: String,
    pub bridge: String,
    /// Its hardware address as a port; its own is the guest's now.
    pub mac: MacAddress,
    /// What was seen of it, written down at the interface itself: who is cut off in the middle finds
    /// it again there.
    pub remark: String,
    pub stand_in: StandIn,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    pub mac: MacAddress,
    pub mtu: u32,
    pub addresses: Vec<Cidr>,
}

/// A tap device that its owner may open without privileges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tap {
    pub name: String,
    /// The bridge it is a port of.
    pub bridge: String,
    pub mtu: u32,
    /// User and group id of who may open it.
    pub owner: u32,
    /// More than one makes it a multi-queue device.
    pub queues: u32,
}

/// A setting under `/proc/sys`, with `/` between the parts of its name: interface names may hold
/// dots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    pub name: String,
    pub value: String,
}
