//! Tables in the format of `nft --stateless list ruleset`: for golden files, logs, and for comparing a
//! plan with the kernel's rules.

use std::{fmt, net::IpAddr};

use crate::{
    Cidr,
    nft::{
        Action, Chain, EtherType, Family, Hook, HookKind, HookPoint, Match, NeighbourMessage, Rule,
        Table, Transport,
    },
};

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Netdev => "netdev",
        })
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arp => "arp",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {} {{", self.family, self.name)?;
        for (position, chain) in self.chains.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{chain}")?;
        }
        writeln!(f, "}}")
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tchain {} {{", self.name)?;
        if let Some(hook) = &self.hook {
            writeln!(f, "\t\t{hook}")?;
        }
        for rule in &self.rules {
            writeln!(f, "\t\t{rule}")?;
        }
        writeln!(f, "\t}}")
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            HookKind::Filter => "filter",
            HookKind::Nat => "nat",
        };
        let point = match self.point {
            HookPoint::Prerouting => "prerouting",
            HookPoint::Input => "input",
            HookPoint::Forward => "forward",
            HookPoint::Output => "output",
            HookPoint::Postrouting => "postrouting",
            HookPoint::Ingress => "ingress",
        };
        write!(f, "type {kind} hook {point} priority ")?;
        // The tool has names for some priorities, at the hooks where they mean something.
        match (self.point, self.priority) {
            (HookPoint::Prerouting, -100) => f.write_str("dstnat")?,
            (_, -300) => f.write_str("raw")?,
            (HookPoint::Postrouting, 100) => f.write_str("srcnat")?,
            (_, 0) => f.write_str("filter")?,
            (_, priority) => write!(f, "{priority}")?,
        }
        f.write_str("; policy accept;")
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in &self.matches {
            write!(f, "{one} ")?;
        }
        write!(f, "counter {}", self.action)
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InputInterface(name) => write!(f, "iifname \"{name}\""),
            Self::OutputInterface(name) => write!(f, "oifname \"{name}\""),
            Self::Source(cidr) => address(f, "saddr", cidr),
            Self::NotSource(cidr) => address(f, "saddr !=", cidr),
            Self::Destination(cidr) => address(f, "daddr", cidr),
            Self::NotDestination(cidr) => address(f, "daddr !=", cidr),
            Self::DestinationPorts {
                protocol,
                first,
                last,
            } => {
                let protocol = match protocol {
                    Transport::Tcp => "tcp",
                    Transport::Udp => "udp",
                    Transport::Sctp => "sctp",
                };
                if first == last {
                    write!(f, "{protocol} dport {first}")
                } else {
                    write!(f, "{protocol} dport {first}-{last}")
                }
            }
            Self::DestinationIsLocal => f.write_str("fib daddr type local"),
            Self::OneOf(many) => write!(f, "numgen random mod {many} 0"),
            Self::OneClientOf { many, seed } => {
                write!(f, "jhash ip saddr mod {many} seed {seed:#x} 0")
            }
            Self::DestinationWasTranslated => f.write_str("ct status dnat"),
            Self::Reply => f.write_str("ct direction reply"),
            Self::Related => f.write_str("ct state related"),
            Self::Protocol(protocol) => write!(f, "meta protocol {protocol}"),
            Self::ArpSender(address) => write!(f, "arp saddr ip {address}"),
            Self::SourceMacBeginsWith(bytes) => {
                write!(f, "@ll,48,{} 0x", bytes.len() * 8)?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::NotSourceMac(address) => write!(f, "ether saddr != {address}"),
            Self::Neighbour(message) => f.write_str(match message {
                NeighbourMessage::RouterAdvertisement => "icmpv6 type nd-router-advert",
                NeighbourMessage::Solicitation => "icmpv6 type nd-neighbor-solicit",
                NeighbourMessage::Advertisement => "icmpv6 type nd-neighbor-advert",
                NeighbourMessage::Redirect => "icmpv6 type nd-redirect",
            }),
            Self::NeighbourTarget(cidr) => target(f, "", cidr),
            Self::NotNeighbourTarget(cidr) => target(f, "!= ", cidr),
        }
    }
}

/// Older versions of the tool have no name for this part of a message.
fn target(f: &mut fmt::Formatter<'_>, how: &str, cidr: &Cidr) -> fmt::Result {
    let bytes = cidr.whole_bytes();
    write!(f, "@th,64,{} {how}0x", bytes.len() * 8)?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn address(f: &mut fmt::Formatter<'_>, what: &str, cidr: &Cidr) -> fmt::Result {
    let family = Family::of(cidr.address);
    if cidr.host_bits() == 0 {
        write!(f, "{family} {what} {}", cidr.address)
    } else {
        write!(f, "{family} {what} {}", cidr.network())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nat = |f: &mut fmt::Formatter<'_>, kind: &str, to: &IpAddr| write!(f, "{kind} to {to}");
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Reject => f.write_str("reject"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Masquerade => f.write_str("masquerade"),
            Self::DestinationNat(to) => nat(f, "dnat", to),
            Self::DestinationNatTo(to) => write!(f, "dnat to {to}"),
            Self::SourceNat(to) => nat(f, "snat", to),
        }
    }
}
