//! Settings of a pod network.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
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
    /// IPv6 range of the pods; without one they have no such addresses.
    pub pod_cidr_ipv6: Option<Cidr>,
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
            pod_cidr_ipv6: None,
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
    /// The network of IPv6.
    pub(crate) ipv6: Option<Cidr>,
}

/// The link-local address of the host on the bridge. Pods use it as their router, since router advertisements to
/// guests that take over a pod's address cannot name another.
pub(crate) const IPV6_ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The link-local addresses that hosts make.
pub(crate) const LINK_LOCAL: Cidr = Cidr {
    address: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)),
    prefix_length: 64,
};

impl Range {
    pub(crate) fn parse(cidr: Cidr) -> Result<Self, PodNetworkError> {
        let network = cidr.network();
        let gateway = network.nth(1);
        match gateway {
            Some(IpAddr::V4(gateway)) if (2..=24).contains(&network.host_bits()) => Ok(Self {
                network,
                gateway,
                ipv6: None,
            }),
            _ => Err(PodNetworkError::BadRange { range: cidr }),
        }
    }

    /// The same with IPv6, in which every pod has the address with the number of its IPv4 address.
    pub(crate) fn with_ipv6(self, cidr: Option<Cidr>) -> Result<Self, PodNetworkError> {
        let Some(cidr) = cidr else { return Ok(self) };
        let network = cidr.network();
        let is_wide = network.host_bits() >= self.network.host_bits();
        match network.address {
            IpAddr::V6(address) if is_wide && network.prefix_length >= 8 && is_usable(address) => {
                Ok(Self {
                    ipv6: Some(network),
                    ..self
                })
            }
            _ => Err(PodNetworkError::BadIpv6Range {
                range: cidr,
                longest: 128_u8.saturating_sub(self.network.host_bits()),
            }),
        }
    }

    /// The IPv6 address of the pod, or the host, with this IPv4 address.
    pub(crate) fn ipv6_of(&self, address: Ipv4Addr) -> Option<Cidr> {
        let network = self.ipv6?;
        let IpAddr::V4(first) = self.network.address else {
            return None;
        };
        let number = address.to_bits().checked_sub(first.to_bits())?;
        Some(Cidr {
            address: network.nth(number)?,
            prefix_length: network.prefix_length,
        })
    }

    /// The link-local addresses that the MAC addresses of all pods of this range lead to.
    pub(crate) fn links(&self) -> Cidr {
        // The bytes ff and fe are in the middle.
        let bytes = self.mac_prefix().len() + 2;
        Cidr {
            address: link_of(mac_of(self.gateway)).into(),
            prefix_length: u8::try_from(64 + 8 * bytes).unwrap_or(128),
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

/// The link-local address that follows from a MAC address.
pub(crate) fn link_of(mac: MacAddress) -> Ipv6Addr {
    let mut octets = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    octets[8..11].copy_from_slice(&mac.0[..3]);
    octets[13..].copy_from_slice(&mac.0[3..]);
    octets[8] ^= 2;
    Ipv6Addr::from(octets)
}

/// Unique local and global addresses.
fn is_usable(address: Ipv6Addr) -> bool {
    address.is_unique_local() || address.segments()[0] & 0xe000 == 0x2000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Result<Range, PodNetworkError> {
        Range::parse(text.parse().unwrap())
    }

    #[test]
    fn ipv6_address_has_the_number_of_the_ipv4_address() {
        let range = range("10.244.0.0/16").unwrap();
        for bad in [
            "fd00::/113",
            "10.245.0.0/16",
            "fe80::/64",
            "ff02::/64",
            "::/0",
            "::ffff:0:0/96",
        ] {
            let error = range.with_ipv6(Some(bad.parse().unwrap())).unwrap_err();
            assert_eq!(error.reason(), "BadPodRange", "{bad}");
        }
        assert!(range.ipv6_of(range.gateway).is_none());
        for (network, expected) in [
            ("fd00:10:244::/112", "fd00:10:244::102/112"),
            ("2001:db8::7/64", "2001:db8::102/64"),
        ] {
            let range = range.with_ipv6(Some(network.parse().unwrap())).unwrap();
            let found = range.ipv6_of([10, 244, 1, 2].into());
            assert_eq!(found, Some(expected.parse().unwrap()));
            assert_eq!(range.ipv6_of([10, 243, 0, 1].into()), None);
        }
    }

    #[test]
    fn links_of_a_range_are_those_of_its_mac_addresses() {
        for (network, expected) in [
            ("10.244.0.0/24", "fe80::858:aff:fef4:0/120"),
            ("10.244.0.0/16", "fe80::858:aff:fef4:0/112"),
            ("10.244.0.0/20", "fe80::858:aff:fef4:0/112"),
            ("10.0.0.0/8", "fe80::858:aff:fe00:0/104"),
        ] {
            let links = range(network).unwrap().links();
            assert_eq!(links.network().to_string(), expected, "{network}");
        }
        let link = link_of(mac_of([10, 244, 0, 2].into()));
        assert_eq!(link.to_string(), "fe80::858:aff:fef4:2");
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
