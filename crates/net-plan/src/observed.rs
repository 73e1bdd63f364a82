//! The observed network of a pod, before it is plumbed.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
};

use model::BindingPlugins;

use crate::{Cidr, MacAddress};

/// An interface that the cluster's network plugins gave the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInterface {
    pub name: String,
    pub mac: MacAddress,
    pub mtu: u32,
    /// Global addresses, with the length of their prefixes.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    pub ipv6: Option<(Ipv6Addr, u8)>,
    pub routes: Vec<PodRoute>,
    /// The link receives only frames to its own hardware address, as a macvlan does.
    pub receives_own_only: bool,
}

impl PodInterface {
    /// Its addresses, IPv4 first.
    pub(crate) fn addresses(&self) -> Vec<Cidr> {
        let ipv4 = self.ipv4.map(|(address, length)| Cidr::v4(address, length));
        let ipv6 = self.ipv6.map(|(address, length)| Cidr::v6(address, length));
        ipv4.into_iter().chain(ipv6).collect()
    }
}

/// A route through the interface; a prefix of zero bits is the default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRoute {
    pub destination: Cidr,
    /// `None`: on the link.
    pub via: Option<std::net::IpAddr>,
}

/// Everything that a plan depends on besides the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Name of the pod's interface on its default network.
    pub primary: String,
    /// The pod's interfaces that exist, of those in [`crate::pod_interfaces`].
    pub interfaces: Vec<PodInterface>,
    /// Those of [`crate::tap_candidates`] that exist and that QEMU can open: taps and macvtaps.
    pub taps: BTreeSet<String>,
    /// The network bindings of the pod.
    pub plugins: BindingPlugins,
    /// Content of the pod's `/etc/resolv.conf`.
    pub resolv_conf: String,
}
