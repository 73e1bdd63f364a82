//! Settings of a pod network.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use net_plan::{Cidr, MacAddress};

use crate::PodNetworkError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the bridge, at most 15 characters.
    pub bridge: String,
    /// IPv4 range of the pods; its first address is the gateway's.
    pub pod_cidr: Cidr,
    pub mtu: u32,
    /// State folder, used by this network only.
    pub state_dir: PathBuf,
    /// Name of its nftables table.
    pub table: String,
}

impl Settings {
    /// The default network, with its state in this folder.
    pub fn usual(state_dir: PathBuf) -> Self {
        Self {
            bridge: "ferrovirt0".to_owned(),
            pod_cidr: Cidr::v4(Ipv4Addr::new(10, 244, 0, 0), 24),
            mtu: 1500,
            state_dir,
            table: "ferrovirt".to_owned(),
        }
    }
}

/// A validated pod range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) network: Cidr,
    pub(crate) gateway: Ipv4Addr,
}

impl Range {
    pub(crate) fn parse(cidr: Cidr) -> Result<Self, PodNetworkError> {
        let network = cidr.network();
        let gateway = network.nth(1);
        match gateway {
            Some(IpAddr::V4(gateway)) if (2..=24).contains(&network.host_bits()) => {
                Ok(Self { network, gateway })
            }
            _ => Err(PodNetworkError::BadRange { range: cidr }),
        }
    }

    /// Number of addresses besides network, gateway and broadcast.
    pub(crate) fn size(&self) -> u32 {
        let all = 1_u32
            .checked_shl(self.network.host_bits().into())
            .unwrap_or(u32::MAX);
        all.saturating_sub(3)
    }

    /// The pod address at this offset, counted from zero.
    pub(crate) fn pod(&self, offset: u32) -> Option<Ipv4Addr> {
        match self.network.nth(offset.checked_add(2)?)? {
            IpAddr::V4(address) if offset < self.size() => Some(address),
            _ => None,
        }
    }

    pub(crate) fn holds_pod(&self, address: Ipv4Addr) -> bool {
        let offset = address.to_bits().checked_sub(self.gateway.to_bits() + 1);
        offset.is_some_and(|offset| offset < self.size())
    }

    pub(crate) fn prefix_length(&self) -> u8 {
        self.network.prefix_length
    }

    /// The bytes with which the MAC addresses of all pods of this range begin.
    pub(crate) fn mac_prefix(&self) -> Vec<u8> {
        let whole = usize::from(self.prefix_length() / 8);
        let first = mac_of(self.gateway).0.into_iter();
        first.take(2 + whole).collect()
    }

    /// Fixed, so that the bridge does not inherit the address of its first port.
    pub(crate) fn bridge_mac(&self) -> MacAddress {
        mac_of(self.gateway)
    }
}

/// The MAC address of the interface with this address. As it follows from the address, the neighbour
/// entries of the host and of other pods stay valid when the address passes to another pod.
pub(crate) fn mac_of(address: Ipv4Addr) -> MacAddress {
    let [a, b, c, d] = address.octets();
    // A locally administered unicast address.
    MacAddress([0x0a, 0x58, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Result<Range, PodNetworkError> {
        Range::parse(text.parse().unwrap())
    }

    #[test]
    fn range_must_hold_gateway_and_at_least_one_pod() {
        for bad in [
            "10.0.0.0/31",
            "10.0.0.0/32",
            "10.0.0.0/7",
            "fd00::/64",
            "0.0.0.0/0",
        ] {
            assert!(range(bad).is_err(), "{bad}");
        }
        for (text, gateway, size, last) in [
            ("10.0.0.0/30", "10.0.0.1", 1, "10.0.0.2"),
            ("10.244.0.7/24", "10.244.0.1", 253, "10.244.0.254"),
            ("10.244.0.0/16", "10.244.0.1", 65533, "10.244.255.254"),
        ] {
            let range = range(text).unwrap();
            assert_eq!(range.gateway, gateway.parse::<Ipv4Addr>().unwrap());
            assert_eq!(range.size(), size);
            assert_eq!(range.pod(size - 1), Some(last.parse().unwrap()));
            assert_eq!(range.pod(size), None);
            assert!(range.holds_pod(last.parse().unwrap()));
            assert!(!range.holds_pod(range.gateway));
            assert!(!range.holds_pod(Ipv4Addr::from_bits(range.gateway.to_bits() + 1 + size)));
        }
    }
}
