//! Service addresses and ports of the host: each connection to one is translated to a pod, chosen at
//! random or by the client's address.
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

/// Where the connections of a [`Forward`] arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Front {
    /// The address of a service.
    Service(Ipv4Addr),
    /// One address of this host.
    HostAddress(Ipv4Addr),
    /// Every address of this host.
    Host,
}

/// How the targets of connections are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// At random.
    Random,
    /// By the client's address, so that a client stays with its target while the targets stay the same.
    ByClient,
}

/// The translation of one port to its targets. Connections to a service without targets are refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forward {
    pub front: Front,
    pub port: u16,
    pub protocol: Protocol,
    pub targets: Vec<SocketAddrV4>,
    pub choice: Choice,
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

/// The network that a table of services belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) bridge: &'a str,
    pub(crate) pods: Cidr,
    pub(crate) services: Cidr,
}

pub(crate) fn table(name: &str, site: Site<'_>, forwards: &[Forward]) -> Table {
    use HookKind::{Filter, Nat};
    use HookPoint::{Forward as Forwarded, Output, Postrouting, Prerouting};

    let base = |name: &str, (kind, point, priority), rules| Chain {
        name: name.to_owned(),
        hook: Some(Hook {
            kind,
            point,
            priority,
        }),
        rules,
    };
    let plain = |name: &str, rules| Chain {
        name: name.to_owned(),
        hook: None,
        rules,
    };
    let to_services = || Match::Destination(site.services);
    let jumps = || {
        [
            (to_services(), "services"),
            (Match::DestinationIsLocal, "host-ports"),
        ]
        .map(|(one, chain)| Rule {
            matches: vec![one],
            action: Action::Jump(chain.to_owned()),
        })
        .to_vec()
    };
    let refuse = || {
        vec![Rule {
            matches: vec![to_services()],
            action: Action::Jump("without-targets".to_owned()),
        }]
    };
    let forwards: Vec<Forward> = forwards.iter().map(without_loopback).collect();
    let (services, host_ports): (Vec<&Forward>, Vec<&Forward>) = forwards
        .iter()
        .partition(|forward| matches!(forward.front, Front::Service(_)));
    let without_targets = services.iter().filter(|forward| forward.targets.is_empty());
    let translations =
        |forwards: &[&Forward]| forwards.iter().copied().flat_map(translations).collect();
    Table {
        family: Family::Ip,
        name: name.to_owned(),
        chains: vec![
            plain("services", translations(&services)),
            plain("host-ports", translations(&host_ports)),
            plain(
                "without-targets",
                without_targets
                    .map(|forward| Rule {
                        matches: front(forward),
                        action: Action::Reject,
                    })
                    .collect(),
            ),
            base("prerouting", (Nat, Prerouting, -100), jumps()),
            base("output", (Nat, Output, -100), jumps()),
            base(
                "postrouting",
                (Nat, Postrouting, 99),
                sources(site, &host_ports),
            ),
            base("refuse-pods", (Filter, Forwarded, 0), refuse()),
            base("refuse-host", (Filter, Output, 0), refuse()),
            base(
                "foreign-loopback",
                (Filter, Prerouting, -300),
                vec![foreign_loopback(site)],
            ),
        ],
    }
}

/// Translated packets whose source must be this host, so that the replies come back here.
fn sources(site: Site<'_>, host_ports: &[&Forward]) -> Vec<Rule> {
    let masquerade = |mut matches: Vec<Match>| {
        matches.push(Match::DestinationWasTranslated);
        Rule {
            matches,
            action: Action::Masquerade,
        }
    };
    let mut all = vec![
        // Pods reply to each other directly over the bridge, bypassing the translation.
        masquerade(vec![
            Match::Source(site.pods),
            Match::Destination(site.pods),
        ]),
        // A pod cannot reply to a loopback address.
        masquerade(vec![
            Match::OutputInterface(site.bridge.to_owned()),
            Match::Source(LOOPBACK),
        ]),
    ];
    // Targets that are not pods here reply by routes of their own.
    let elsewhere = host_ports.iter().flat_map(|forward| {
        let targets = forward.targets.iter();
        targets
            .filter(|target| !site.pods.contains((*target.ip()).into()))
            .map(|target| destination(*target.ip(), forward.protocol, target.port()))
    });
    all.extend(elsewhere.map(masquerade));
    all
}

/// A forward without targets that listen on the host's loopback addresses. The rule against packets to
/// these addresses comes before the translation, so a pod would reach them by a service that names them.
fn without_loopback(forward: &Forward) -> Forward {
    let targets = forward.targets.iter().copied();
    Forward {
        targets: targets
            .filter(|target| !target.ip().is_loopback())
            .collect(),
        ..forward.clone()
    }
}

const LOOPBACK: Cidr = Cidr {
    address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)),
    prefix_length: 8,
};

/// The bridge may route loopback addresses, for connections of the host to host ports. A pod must not
/// reach the host's own loopback services by that.
fn foreign_loopback(site: Site<'_>) -> Rule {
    Rule {
        matches: vec![
            Match::InputInterface(site.bridge.to_owned()),
            Match::Destination(LOOPBACK),
        ],
        action: Action::Drop,
    }
}

fn destination(address: Ipv4Addr, protocol: Protocol, port: u16) -> Vec<Match> {
    vec![
        Match::Destination(Cidr::v4(address, 32)),
        ports(protocol, port),
    ]
}

fn ports(protocol: Protocol, port: u16) -> Match {
    Match::DestinationPorts {
        protocol: match protocol {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
        },
        first: port,
        last: port,
    }
}

/// The packets of a forward.
fn front(forward: &Forward) -> Vec<Match> {
    match forward.front {
        Front::Service(address) | Front::HostAddress(address) => {
            destination(address, forward.protocol, forward.port)
        }
        Front::Host => vec![ports(forward.protocol, forward.port)],
    }
}

/// One rule per target: the first of n targets takes 1/n of the connections, the next 1/(n-1) of the
/// rest.
fn translations(forward: &Forward) -> impl Iterator<Item = Rule> {
    let left = (1..=u32::try_from(forward.targets.len()).unwrap_or(u32::MAX)).rev();
    forward.targets.iter().zip(left).map(move |(target, left)| {
        let mut matches = front(forward);
        match forward.choice {
            _ if left == 1 => {}
            Choice::Random => matches.push(Match::OneOf(left)),
            Choice::ByClient => matches.push(Match::OneClientOf {
                many: left,
                seed: seed(*target),
            }),
        }
        Rule {
            matches,
            action: Action::DestinationNatTo(SocketAddr::V4(*target)),
        }
    })
}

/// Differs between the targets of a service and stays the same when the rules are written again. Zero
/// would request a random one from the kernel.
fn seed(target: SocketAddrV4) -> u32 {
    let port = u32::from(target.port());
    (target.ip().to_bits() ^ port.rotate_left(16)) | 1
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

    fn site() -> Site<'static> {
        Site {
            bridge: "br",
            pods: "10.244.0.0/24".parse().unwrap(),
            services: "10.96.0.0/24".parse().unwrap(),
        }
    }

    fn forward(front: Front, targets: &[&str]) -> Forward {
        Forward {
            front,
            port: 80,
            protocol: Protocol::Tcp,
            targets: targets.iter().map(|one| one.parse().unwrap()).collect(),
            choice: Choice::Random,
        }
    }

    /// The rules of a chain.
    fn chain(forwards: &[Forward], name: &str) -> Vec<String> {
        let table = table("t", site(), forwards);
        let chain = table.chains.iter().find(|chain| chain.name == name);
        let rules = chain.unwrap().rules.iter();
        rules.map(ToString::to_string).collect()
    }

    const SERVICE: Front = Front::Service(Ipv4Addr::new(10, 96, 0, 5));

    #[test]
    fn connections_are_spread_evenly_over_targets() {
        let targets = ["10.244.0.2:8080", "10.244.0.3:8080", "10.244.0.4:81"];
        let to = "ip daddr 10.96.0.5 tcp dport 80";
        assert_eq!(
            chain(&[forward(SERVICE, &targets)], "services"),
            [
                format!("{to} numgen random mod 3 0 counter dnat to 10.244.0.2:8080"),
                format!("{to} numgen random mod 2 0 counter dnat to 10.244.0.3:8080"),
                format!("{to} counter dnat to 10.244.0.4:81"),
            ]
        );
        assert_eq!(
            chain(&[], "postrouting")[0],
            "ip saddr 10.244.0.0/24 ip daddr 10.244.0.0/24 ct status dnat counter masquerade"
        );
    }

    #[test]
    fn clients_with_affinity_keep_their_target() {
        let mut sticky = forward(SERVICE, &["10.244.0.2:80", "10.244.0.3:80"]);
        sticky.choice = Choice::ByClient;
        let to = "ip daddr 10.96.0.5 tcp dport 80";
        assert_eq!(
            chain(&[sticky], "services"),
            [
                format!("{to} jhash ip saddr mod 2 seed 0xaa40003 0 counter dnat to 10.244.0.2:80"),
                format!("{to} counter dnat to 10.244.0.3:80"),
            ]
        );
    }

    #[test]
    fn host_ports_are_forwarded_from_every_or_one_address() {
        let one = Front::HostAddress(Ipv4Addr::new(192, 0, 2, 1));
        let forwards = [
            forward(one, &["10.244.0.2:8080"]),
            forward(Front::Host, &["10.244.0.3:8080", "192.0.2.9:81"]),
        ];
        assert_eq!(
            chain(&forwards, "host-ports"),
            [
                "ip daddr 192.0.2.1 tcp dport 80 counter dnat to 10.244.0.2:8080",
                "tcp dport 80 numgen random mod 2 0 counter dnat to 10.244.0.3:8080",
                "tcp dport 80 counter dnat to 192.0.2.9:81",
            ]
        );
        for hook in ["prerouting", "output"] {
            assert_eq!(
                chain(&[], hook)[1],
                "fib daddr type local counter jump host-ports"
            );
        }
        assert_eq!(
            chain(&forwards, "postrouting")[1..],
            [
                "oifname \"br\" ip saddr 127.0.0.0/8 ct status dnat counter masquerade",
                "ip daddr 192.0.2.9 tcp dport 81 ct status dnat counter masquerade",
            ]
        );
        assert_eq!(
            chain(&[], "foreign-loopback"),
            ["iifname \"br\" ip daddr 127.0.0.0/8 counter drop"]
        );
    }

    /// A user may write any address into the endpoints of a service, also one of the host's own services.
    #[test]
    fn nobody_reaches_loopback_services_of_the_host_by_a_service_or_node_port() {
        let targets = ["127.0.0.1:6443", "127.8.0.1:22", "10.244.0.2:80"];
        let forwards = [
            forward(SERVICE, &targets),
            forward(Front::Host, &targets),
            forward(Front::HostAddress([192, 0, 2, 1].into()), &targets[..2]),
        ];
        let rules = table("t", site(), &forwards);
        let rules = rules.chains.iter().flat_map(|chain| &chain.rules);
        let to_loopback = |action: &Action| matches!(action, Action::DestinationNatTo(to) if to.ip().is_loopback());
        assert!(!rules.into_iter().any(|rule| to_loopback(&rule.action)));
        // The rest of the targets gets every connection.
        let to = "tcp dport 80 counter dnat to 10.244.0.2:80";
        assert_eq!(chain(&forwards, "host-ports"), [to.to_owned()]);
        assert_eq!(
            chain(&[forward(SERVICE, &targets[..2])], "without-targets"),
            ["ip daddr 10.96.0.5 tcp dport 80 counter reject"]
        );
    }

    /// Only the bridge may route loopback addresses; its packets to them are dropped before any translation,
    /// and the kernel drops those of other interfaces.
    #[test]
    fn packets_to_loopback_are_dropped_before_they_are_translated() {
        let table = table("t", site(), &[]);
        let hook = |name: &str| {
            let chain = table.chains.iter().find(|chain| chain.name == name);
            chain.and_then(|chain| chain.hook).unwrap()
        };
        let (drop, translate) = (hook("foreign-loopback"), hook("prerouting"));
        assert_eq!(drop.point, HookPoint::Prerouting);
        assert_eq!(drop.point, translate.point);
        assert!(drop.priority < translate.priority);
    }

    #[test]
    fn service_without_targets_refuses_connections() {
        let forwards = [forward(SERVICE, &[]), forward(Front::Host, &[])];
        assert_eq!(
            chain(&forwards, "without-targets"),
            ["ip daddr 10.96.0.5 tcp dport 80 counter reject"]
        );
    }
}
