//! The ranges of services, and the address of this server for pods.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddrV4},
    ops::RangeInclusive,
};

/// The node ports of every Kubernetes installation.
const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;
/// Ports at the start of the range that are assigned on request only, until the others are used up.
const RESERVED_PORTS: usize = 86;

/// Addresses of services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceSettings {
    /// The range of cluster IPs. Its first address belongs to the service `kubernetes`.
    pub network: Ipv4Addr,
    pub prefix_length: u8,
    /// Where pods reach this server: the endpoint of the service `kubernetes`, which exists only
    /// with it.
    pub server: Option<SocketAddrV4>,
}

impl ServiceSettings {
    /// Kubernetes' usual range, for a server that pods cannot reach.
    pub const fn usual() -> Self {
        Self {
            network: Ipv4Addr::new(10, 96, 0, 0),
            prefix_length: 16,
            server: None,
        }
    }

    /// The address of the service `kubernetes`.
    pub fn first(&self) -> Ipv4Addr {
        self.nth(1)
    }

    pub(crate) fn holds(&self, address: Ipv4Addr) -> bool {
        let offset = address.to_bits().checked_sub(self.network.to_bits());
        offset.is_some_and(|offset| (1..=self.count()).contains(&offset))
    }

    /// The addresses of services, in the order in which they are tried: those at the start of the
    /// range last, because clients choose from them.
    pub(crate) fn candidates(&self, seed: &str) -> impl Iterator<Item = Ipv4Addr> {
        let reserved = (self.count() / 16).clamp(16, 256).min(self.count());
        let free = self.count() - reserved;
        let start = hash(seed) % free.max(1);
        let upper = (0..free).map(move |step| reserved + 1 + (start + step) % free);
        let lower = 1..=reserved;
        let this = *self;
        upper.chain(lower).map(move |offset| this.nth(offset))
    }

    pub(crate) fn node_ports(seed: &str) -> impl Iterator<Item = u16> {
        let free = NODE_PORTS.len() - RESERVED_PORTS;
        let start = usize::try_from(hash(seed)).unwrap_or_default() % free;
        let upper = NODE_PORTS.skip(RESERVED_PORTS);
        let first = upper.clone().skip(start);
        let rest = upper.take(start);
        first.chain(rest).chain(NODE_PORTS.take(RESERVED_PORTS))
    }

    pub(crate) fn is_node_port(port: u16) -> bool {
        NODE_PORTS.contains(&port)
    }

    pub(crate) fn node_port_range() -> String {
        format!("{}-{}", NODE_PORTS.start(), NODE_PORTS.end())
    }

    /// Without the addresses of network and broadcast.
    fn count(&self) -> u32 {
        let bits = 32_u32.saturating_sub(self.prefix_length.into());
        let all = 1_u32.checked_shl(bits).unwrap_or(u32::MAX);
        all.saturating_sub(2)
    }

    fn nth(&self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits().saturating_add(offset))
    }
}

impl fmt::Display for ServiceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_length)
    }
}

/// So that a released value is seldom assigned again at once.
fn hash(seed: &str) -> u32 {
    seed.bytes().fold(0_u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn candidates_are_the_range_without_network_and_broadcast() {
        let range = ServiceSettings {
            prefix_length: 24,
            ..ServiceSettings::usual()
        };
        let all: BTreeSet<Ipv4Addr> = range.candidates("uid").collect();
        assert_eq!(all.len(), 254);
        assert!(all.iter().all(|address| range.holds(*address)));
        assert!(!range.holds([10, 96, 0, 0].into()) && !range.holds([10, 96, 0, 255].into()));
        assert_eq!(range.first(), Ipv4Addr::new(10, 96, 0, 1));
        // The service `kubernetes` takes the last one that is tried first by clients.
        let last = range.candidates("uid").nth(254 - 16);
        assert_eq!(last, Some(range.first()));
    }

    #[test]
    fn every_node_port_is_tried_once() {
        let all: Vec<u16> = ServiceSettings::node_ports("uid").collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 2768);
        assert_eq!(all.len(), 2768);
        assert!(all.iter().all(|port| ServiceSettings::is_node_port(*port)));
    }
}
