//! Which connections pods may have with each other and with others: network policies as packet rules.
//!
//! The rules have a table of their own, which is replaced as a whole. They see packets between pods, which cross
//! the bridge, and packets that the host routes, with the addresses of both pods: those of services are
//! translated before, and sources after. Connections of the host itself, and to it, are not restricted.

use std::net::Ipv4Addr;

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
    pub peer: Option<Block>,
    /// `None` allows every port, and packets without ports.
    pub ports: Option<Ports>,
}

/// A range of addresses without some parts of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    pub range: Cidr,
    pub except: Vec<Cidr>,
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

    fn is_outside(self, range: Cidr) -> Match {
        match self {
            Self::Source => Match::NotSource(range),
            Self::Destination => Match::NotDestination(range),
        }
    }
}

pub(crate) fn table(name: &str, restrictions: &[Restriction]) -> Table {
    let mut chains = Chains::default();
    let mut rules = vec![Rule {
        matches: vec![Match::Established],
        action: Action::Accept,
    }];
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
    let hook = Hook {
        kind: HookKind::Filter,
        point: HookPoint::Forward,
        priority: 0,
    };
    let mut all = chains.made;
    all.push(Chain {
        name: "forward".to_owned(),
        hook: Some(hook),
        rules,
    });
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
        if let Some(Block { range, except }) = &self.peer {
            if range.prefix_length > 0 {
                matches.push(peer.is_in(*range));
            }
            matches.extend(except.iter().map(|except| peer.is_outside(*except)));
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
        let table = table("t", restrictions);
        let lines = |chain: &Chain| {
            let name = chain.name.clone();
            let rules = chain.rules.iter();
            rules
                .map(move |rule| format!("{name}: {rule}"))
                .collect::<Vec<_>>()
        };
        table.chains.iter().flat_map(lines).collect()
    }

    fn allowed(range: &str, except: &[&str], ports: Option<Ports>) -> Allowed {
        Allowed {
            peer: Some(Block {
                range: range.parse().unwrap(),
                except: except.iter().map(|one| one.parse().unwrap()).collect(),
            }),
            ports,
        }
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
        let only = |one| Connections::Only(vec![one]);
        let found = rules(&[
            restriction(
                2,
                only(allowed("10.244.0.3/32", &[], Some(web))),
                only(allowed("0.0.0.0/0", &["192.0.2.0/24"], None)),
            ),
            restriction(
                3,
                Connections::Free,
                only(allowed("0.0.0.0/0", &["192.0.2.0/24"], None)),
            ),
        ]);
        assert_eq!(
            found,
            [
                "allowed-0: ip daddr != 192.0.2.0/24 counter return",
                "allowed-0: counter drop",
                "allowed-1: ip saddr 10.244.0.3 tcp dport 80 counter return",
                "allowed-1: counter drop",
                "forward: ct state established,related counter accept",
                "forward: ip saddr 10.244.0.2 ip daddr 10.244.0.2 counter accept",
                "forward: ip saddr 10.244.0.2 counter jump allowed-0",
                "forward: ip daddr 10.244.0.2 counter jump allowed-1",
                "forward: ip saddr 10.244.0.3 ip daddr 10.244.0.3 counter accept",
                "forward: ip saddr 10.244.0.3 counter jump allowed-0",
            ]
        );
    }
}
