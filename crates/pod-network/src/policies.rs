//! Which connections pods may have with each other and with others: network policies as packet rules.
//!
//! The rules have a table of their own, which is replaced as a whole. They see packets between pods, which cross
//! the bridge, and packets that the host routes, with the addresses of both pods: those of services are
//! translated before, and sources after. Connections of the host itself, and to it, are not restricted.

use std::net::{IpAddr, Ipv4Addr};

use net_plan::{
    Cidr,
    nft::{Action, Chain, Family, Hook, HookKind, HookPoint, Match, Rule, Table, Transport},
};

/// The connections that a pod may accept and open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Restriction {
    pub pod: Ipv4Addr,
    pub ingress: Connections,
    pub egress: Connections,
}

/// Connections of a pod in one direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Connections {
    /// All of them.
    Free,
    /// Those that one of these allows.
    Only(Vec<Allowed>),
}

/// Connections with some peers, to some ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allowed {
    /// `None` allows every peer.
    pub peer: Option<Cidr>,
    /// `None` allows every port, and packets without ports.
    pub ports: Option<Ports>,
}

/// Ports `first` to `last`, both included, of the connection's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    pub protocol: Transport,
    pub first: u16,
    pub last: u16,
}

/// An end of a connection, as a pod sees it.
#[derive(Debug, Clone, Copy)]
enum Peer {
    Source,
    Destination,
}

impl Peer {
    fn is_in(self, range: Cidr) -> Match {
        match self {
            Self::Source => Match::Source(range),
            Self::Destination => Match::Destination(range),
        }
    }
}

/// The network that the tables belong to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) bridge: &'a str,
    pub(crate) pods: Cidr,
}

/// The rules for IPv6, which policies do not open yet. Without a range of it, pods have link-local addresses only.
pub(crate) fn table_of_ipv6(name: &str, site: Site<'_>, range: Option<Cidr>) -> Table {
    let from_pods = || Match::InputInterface(site.bridge.to_owned());
    let to_pods = || Match::OutputInterface(site.bridge.to_owned());
    let rule = |matches, action| Rule { matches, action };
    let mut rules = vec![rule(vec![from_pods()], Action::Drop)];
    if range.is_some() {
        rules = vec![
            rule(vec![to_pods()], Action::Drop),
            // An answer lets programs try IPv4 at once.
            rule(vec![from_pods()], Action::Reject),
        ];
    }
    Table {
        family: Family::Ip6,
        name: name.to_owned(),
        chains: vec![forward(rules)],
    }
}

fn forward(rules: Vec<Rule>) -> Chain {
    Chain {
        name: "forward".to_owned(),
        hook: Some(Hook {
            kind: HookKind::Filter,
            point: HookPoint::Forward,
            priority: 0,
        }),
        rules,
    }
}

/// The range of addresses that more than one pod listens to.
const MULTICAST: Cidr = Cidr {
    address: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)),
    prefix_length: 4,
};

/// Packets to addresses of many pods: no rule for a pod matches them.
fn to_many(site: Site<'_>) -> impl Iterator<Item = Rule> {
    let hosts = u32::MAX.checked_shr(u32::from(site.pods.prefix_length));
    let last = match site.pods.network().address {
        IpAddr::V4(first) => first.to_bits() | hosts.unwrap_or(0),
        IpAddr::V6(_) => u32::MAX,
    };
    let one = |address: Ipv4Addr| Cidr::v4(address, 32);
    [MULTICAST, one(Ipv4Addr::BROADCAST), one(last.into())]
        .into_iter()
        .map(move |range| Rule {
            matches: vec![
                Match::InputInterface(site.bridge.to_owned()),
                Match::Destination(range),
            ],
            action: Action::Drop,
        })
}

pub(crate) fn table(name: &str, site: Site<'_>, restrictions: &[Restriction]) -> Table {
    let mut chains = Chains::default();
    let accept = |one| Rule {
        matches: vec![one],
        action: Action::Accept,
    };
    // Packets of the end that opened a connection have to be allowed one by one: it may be another pod with the
    // address by now.
    let mut rules = vec![accept(Match::Reply), accept(Match::Related)];
    rules.extend(to_many(site));
    for Restriction {
        pod,
        ingress,
        egress,
    } in restrictions
    {
        let from = || Match::Source(Cidr::v4(*pod, 32));
        let to = || Match::Destination(Cidr::v4(*pod, 32));
        // By the address of a service, a pod may reach itself.
        rules.push(Rule {
            matches: vec![from(), to()],
            action: Action::Accept,
        });
        for (connections, peer, packets) in [
            (egress, Peer::Destination, from()),
            (ingress, Peer::Source, to()),
        ] {
            if let Connections::Only(allowed) = connections {
                rules.push(Rule {
                    matches: vec![packets],
                    action: Action::Jump(chains.of(allowed, peer)),
                });
            }
        }
    }
    let mut all = chains.made;
    all.push(forward(rules));
    Table {
        family: Family::Ip,
        name: name.to_owned(),
        chains: all,
    }
}

/// Chains of allowed connections. Pods with the same ones share a chain.
#[derive(Default)]
struct Chains {
    made: Vec<Chain>,
}

impl Chains {
    /// The name of the chain, which returns packets that are allowed and drops others.
    fn of(&mut self, allowed: &[Allowed], peer: Peer) -> String {
        let rules: Vec<Rule> = allowed
            .iter()
            .map(|allowed| allowed.rule(peer))
            .chain([Rule {
                matches: Vec::new(),
                action: Action::Drop,
            }])
            .collect();
        if let Some(found) = self.made.iter().find(|chain| chain.rules == rules) {
            return found.name.clone();
        }
        let name = format!("allowed-{}", self.made.len());
        self.made.push(Chain {
            name: name.clone(),
            hook: None,
            rules,
        });
        name
    }
}

impl Allowed {
    fn rule(&self, peer: Peer) -> Rule {
        let mut matches = Vec::new();
        if let Some(range) = self.peer.filter(|range| range.prefix_length > 0) {
            matches.push(peer.is_in(range));
        }
        matches.extend(self.ports.map(|ports| Match::DestinationPorts {
            protocol: ports.protocol,
            first: ports.first,
            last: ports.last,
        }));
        Rule {
            matches,
            action: Action::Return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(restrictions: &[Restriction]) -> Vec<String> {
        let site = Site {
            bridge: "br",
            pods: "10.244.0.0/24".parse().unwrap(),
        };
        let table = table("t", site, restrictions);
        let lines = |chain: &Chain| {
            let name = chain.name.clone();
            let rules = chain.rules.iter();
            rules
                .map(move |rule| format!("{name}: {rule}"))
                .collect::<Vec<_>>()
        };
        table.chains.iter().flat_map(lines).collect()
    }

    #[test]
    fn packets_have_to_be_allowed_at_both_ends() {
        let web = Ports {
            protocol: Transport::Tcp,
            first: 80,
            last: 80,
        };
        let restriction = |pod: u8, ingress, egress| Restriction {
            pod: [10, 244, 0, pod].into(),
            ingress,
            egress,
        };
        let only = |peer: &str, ports| {
            let peer = Some(peer.parse().unwrap());
            Connections::Only(vec![Allowed { peer, ports }])
        };
        let outside = || only("192.0.2.0/24", None);
        let found = rules(&[
            restriction(2, only("10.244.0.3/32", Some(web)), outside()),
            restriction(3, Connections::Free, outside()),
        ]);
        assert_eq!(
            found,
            [
                "allowed-0: ip daddr 192.0.2.0/24 counter return",
                "allowed-0: counter drop",
                "allowed-1: ip saddr 10.244.0.3 tcp dport 80 counter return",
                "allowed-1: counter drop",
                "forward: ct direction reply counter accept",
                "forward: ct state related counter accept",
                "forward: iifname \"br\" ip daddr 224.0.0.0/4 counter drop",
                "forward: iifname \"br\" ip daddr 255.255.255.255 counter drop",
                "forward: iifname \"br\" ip daddr 10.244.0.255 counter drop",
                "forward: ip saddr 10.244.0.2 ip daddr 10.244.0.2 counter accept",
                "forward: ip saddr 10.244.0.2 counter jump allowed-0",
                "forward: ip daddr 10.244.0.2 counter jump allowed-1",
                "forward: ip saddr 10.244.0.3 ip daddr 10.244.0.3 counter accept",
                "forward: ip saddr 10.244.0.3 counter jump allowed-0",
            ]
        );
    }
}
