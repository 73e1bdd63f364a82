//! Packet rules as plain values: the part of nftables that a pod's network needs.
//!
//! Every rule counts its packets. `host-net` checks names and families when it applies them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{Cidr, MacAddress};

/// Address family of a table; its rules match addresses of that family alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    Ip,
    Ip6,
    /// Every packet that interfaces receive, of any protocol.
    Netdev,
}

impl Family {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::Ip
        } else {
            Self::Ip6
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub family: Family,
    pub name: String,
    pub chains: Vec<Chain>,
}

/// A base chain at a hook, or a chain that only other chains jump to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub name: String,
    pub hook: Option<Hook>,
    pub rules: Vec<Rule>,
}

/// The hook of a base chain; its policy is to accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    pub kind: HookKind,
    pub point: HookPoint,
    pub priority: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    Filter,
    Nat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
    /// Packets that one interface received, before all else; in tables of [`Family::Netdev`] only. The chain has the
    /// name of that interface.
    Ingress,
}

/// The action applies if every match holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub matches: Vec<Match>,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    InputInterface(String),
    OutputInterface(String),
    Source(Cidr),
    NotSource(Cidr),
    Destination(Cidr),
    NotDestination(Cidr),
    /// Destination ports `first` to `last`, both included.
    DestinationPorts {
        protocol: Transport,
        first: u16,
        last: u16,
    },
    /// The destination is an address of this host.
    DestinationIsLocal,
    /// A random one of that many packets.
    OneOf(u32),
    /// One of that many clients, chosen by a hash of the source address and the seed: the same client
    /// always gives the same result.
    OneClientOf {
        many: u32,
        seed: u32,
    },
    /// The destination of the connection was translated.
    DestinationWasTranslated,
    /// The packet is from the end that accepted a connection.
    Reply,
    /// The packet is an error message about a connection.
    Related,
    /// What a packet of a [`Family::Netdev`] is; has to come before matches of its addresses.
    Protocol(EtherType),
    /// The address that the sender of an ARP packet says it has.
    ArpSender(Ipv4Addr),
    SourceMacBeginsWith(Vec<u8>),
    NotSourceMac(MacAddress),
    /// A message of IPv6 between the nodes of a link.
    Neighbour(NeighbourMessage),
    /// The address that such a message is about is in the range, whose prefix has whole bytes; has to come after
    /// the match of the message.
    NeighbourTarget(Cidr),
    NotNeighbourTarget(Cidr),
}

/// A message of IPv6 between the nodes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NeighbourMessage {
    RouterAdvertisement,
    /// Asks for the hardware address of an address.
    Solicitation,
    /// The answer to a solicitation.
    Advertisement,
    /// Names another router for a destination.
    Redirect,
}

/// The protocol of a packet in an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EtherType {
    Arp,
    Ip,
    Ip6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Accept,
    Drop,
    /// Answers with ICMP "port unreachable" or a TCP reset.
    Reject,
    Return,
    Jump(String),
    Masquerade,
    DestinationNat(IpAddr),
    /// Also changes the port; the rule must match one transport protocol.
    DestinationNatTo(SocketAddr),
    SourceNat(IpAddr),
}
