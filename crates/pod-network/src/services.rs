//! Service addresses: each connection to one is translated to a pod, chosen at random.
//!
//! Services have their own address range and nftables table, which is replaced as a whole.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use net_plan::{
    Cidr,
    nft::{Action, Chain, Family, Hook, HookKind, HookPoint, Match, Rule, Table, Transport},
};

use crate::settings::Range;

/// The addresses available to services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    pub first: Ipv4Addr,
    pub count: u32,
}

impl ServiceRange {
    pub fn addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        let first = self.first.to_bits();
        (0..self.count).map(move |offset| Ipv4Addr::from_bits(first.saturating_add(offset)))
    }

    pub fn holds(self, address: Ipv4Addr) -> bool {
        let offset = address.to_bits().checked_sub(self.first.to_bits());
        offset.is_some_and(|offset| offset < self.count)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// The translation of one port of a service address to its targets, if it has any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forward {
    pub address: Ipv4Addr,
    pub port: u16,
    pub protocol: Protocol,
    pub targets: Vec<SocketAddrV4>,
}

/// The service range that belongs to a pod range. Different pod ranges get different service ranges,
/// so that several networks can coexist; the default pod range gets Kubernetes' usual 10.96.0.0.
pub(crate) fn range_of(pods: &Range) -> Cidr {
    let [_, second, third, _] = pods.gateway.octets();
    let near = |first: u8| {
        let offset = second.wrapping_sub(244) % 16;
        Cidr::v4(Ipv4Addr::new(10, first.wrapping_add(offset), third, 0), 24)
    };
    let usual = near(96);
    if usual.overlaps(&pods.network) {
        near(112)
    } else {
        usual
    }
}

pub(crate) fn usable(range: Cidr) -> ServiceRange {
    // Excludes the network and broadcast addresses.
    let first = match range.nth(1) {
        Some(IpAddr::V4(first)) => first,
        _ => Ipv4Addr::UNSPECIFIED,
    };
    ServiceRange { first, count: 254 }
}

pub(crate) fn table(name: &str, pods: Cidr, services: Cidr, forwards: &[Forward]) -> Table {
    let base = |name: &str, point, priority, rules| Chain {
        name: name.to_owned(),
        hook: Some(Hook {
            kind: HookKind::Nat,
            point,
            priority,
        }),
        rules,
    };
    let jump = || {
        vec![Rule {
            matches: vec![Match::Destination(services)],
            action: Action::Jump("services".to_owned()),
        }]
    };
    // Pods reply to each other directly over the bridge, bypassing this translation, so the source of
    // a translated packet must be the host.
    let hairpin = Rule {
        matches: vec![
            Match::Source(pods),
            Match::Destination(pods),
            Match::DestinationWasTranslated,
        ],
        action: Action::Masquerade,
    };
    Table {
        family: Family::Ip,
        name: name.to_owned(),
        chains: vec![
            Chain {
                name: "services".to_owned(),
                hook: None,
                rules: forwards.iter().flat_map(rules).collect(),
            },
            base("prerouting", HookPoint::Prerouting, -100, jump()),
            base("output", HookPoint::Output, -100, jump()),
            base("postrouting", HookPoint::Postrouting, 99, vec![hairpin]),
        ],
    }
}

/// One rule per target: the first of n targets takes 1/n of the connections, the next 1/(n-1) of the
/// rest.
fn rules(forward: &Forward) -> impl Iterator<Item = Rule> {
    let protocol = match forward.protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
    };
    let left = (1..=u32::try_from(forward.targets.len()).unwrap_or(u32::MAX)).rev();
    forward.targets.iter().zip(left).map(move |(target, left)| {
        let mut matches = vec![
            Match::Destination(Cidr::v4(forward.address, 32)),
            Match::DestinationPorts {
                protocol,
                first: forward.port,
                last: forward.port,
            },
        ];
        if left > 1 {
            matches.push(Match::OneOf(left));
        }
        Rule {
            matches,
            action: Action::DestinationNatTo(SocketAddr::V4(*target)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_range_has_its_own_service_range() {
        for (pods, services) in [
            ("10.244.0.0/24", "10.96.0.0/24"),
            ("10.244.7.0/24", "10.96.7.0/24"),
            ("10.9.0.0/24", "10.101.0.0/24"),
            ("10.101.0.0/16", "10.97.0.0/24"),
            ("10.100.3.0/24", "10.112.3.0/24"),
        ] {
            let range = Range::parse(pods.parse().unwrap()).unwrap();
            assert!(!range_of(&range).overlaps(&range.network), "{pods}");
            if pods != "10.100.3.0/24" && pods != "10.101.0.0/16" {
                assert_eq!(range_of(&range), services.parse().unwrap(), "{pods}");
            }
        }
        let usable = usable("10.96.0.0/24".parse().unwrap());
        assert_eq!(usable.addresses().last(), Some([10, 96, 0, 254].into()));
        assert!(usable.holds([10, 96, 0, 1].into()));
        assert!(!usable.holds([10, 96, 0, 0].into()) && !usable.holds([10, 96, 1, 1].into()));
    }

    #[test]
    fn connections_are_spread_evenly_over_targets() {
        let forward = Forward {
            address: [10, 96, 0, 5].into(),
            port: 80,
            protocol: Protocol::Tcp,
            targets: vec![
                "10.244.0.2:8080".parse().unwrap(),
                "10.244.0.3:8080".parse().unwrap(),
                "10.244.0.4:81".parse().unwrap(),
            ],
        };
        let table = table(
            "t",
            "10.244.0.0/24".parse().unwrap(),
            "10.96.0.0/24".parse().unwrap(),
            &[forward],
        );
        let text: Vec<String> = table.chains[0]
            .rules
            .iter()
            .map(ToString::to_string)
            .collect();
        let to = "ip daddr 10.96.0.5 tcp dport 80";
        assert_eq!(
            text,
            [
                format!("{to} numgen random mod 3 0 counter dnat to 10.244.0.2:8080"),
                format!("{to} numgen random mod 2 0 counter dnat to 10.244.0.3:8080"),
                format!("{to} counter dnat to 10.244.0.4:81"),
            ]
        );
        assert_eq!(
            table.chains[3].rules[0].to_string(),
            "ip saddr 10.244.0.0/24 ip daddr 10.244.0.0/24 ct status dnat counter masquerade"
        );
    }
}
