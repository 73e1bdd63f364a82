//! What to make inside a pod's network namespace, in the order it is made.

use crate::{Cidr, MacAddress, nft};

/// Everything to be there before the guest starts. Making it twice is the same as once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plumbing {
    pub bridges: Vec<Bridge>,
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
