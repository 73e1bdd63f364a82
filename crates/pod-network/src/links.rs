//! What a pod may send through its link: packets from its own address alone, from its own hardware address or that of
//! its guest, so that no pod takes another's addresses or becomes its router.
//!
//! Each link has a chain of its own, at the hook where its packets arrive: before the bridge learns from them.

use std::net::{Ipv4Addr, Ipv6Addr};

use net_plan::{
    Cidr,
    nft::{
        Action, Chain, EtherType, Family, Hook, HookKind, HookPoint, Match, NeighbourMessage, Rule,
        Table,
    },
};

use crate::{
    lease::Lease,
    senders::Senders,
    settings::{IPV6_ROUTER, LINK_LOCAL, Range, link_of, mac_of},
};

/// A table with the chains of these links.
pub(crate) fn table<'a>(
    name: &str,
    range: Range,
    leases: impl IntoIterator<Item = &'a Lease>,
) -> Table {
    Table {
        family: Family::Netdev,
        name: name.to_owned(),
        chains: leases
            .into_iter()
            .map(|lease| chain(range, lease))
            .collect(),
    }
}

fn chain(range: Range, lease: &Lease) -> Chain {
    use EtherType::{Arp, Ip};
    use Match::{ArpSender, Protocol, Source};
    let address = lease.address;
    let own = Cidr::v4(address, 32);
    let probe = Ipv4Addr::UNSPECIFIED;
    let mut rules = vec![
        // The bridge would learn that these addresses are at this link.
        rule(foreign_macs(range, lease), Action::Drop),
        rule(vec![Protocol(Ip), Source(own)], Action::Accept),
        rule(vec![Protocol(Arp), ArpSender(address)], Action::Accept),
        // An ARP probe asks whether an address is in use; no host stores its sender.
        rule(vec![Protocol(Arp), ArpSender(probe)], Action::Accept),
    ];
    rules.extend(of_ipv6(range, address));
    // Frames within frames of VLAN 0 as well, which the receiver takes out.
    rules.push(rule(Vec::new(), Action::Drop));
    Chain {
        name: lease.veth.clone(),
        hook: Some(Hook {
            kind: HookKind::Filter,
            point: HookPoint::Ingress,
            priority: 0,
        }),
        rules,
    }
}

fn rule(matches: Vec<Match>, action: Action) -> Rule {
    Rule { matches, action }
}

/// The hardware addresses from which the pod may not send.
fn foreign_macs(range: Range, lease: &Lease) -> Vec<Match> {
    use Match::{NotSourceMac, SourceMacBeginsWith};
    let own = NotSourceMac(mac_of(lease.address));
    match lease.senders {
        Senders::Any => vec![SourceMacBeginsWith(range.mac_prefix()), own],
        Senders::Own | Senders::Guest(_) => {
            let guest = lease.senders.guest_mac().map(NotSourceMac);
            [own].into_iter().chain(guest).collect()
        }
    }
}

/// The rules for IPv6: the pod sends from its own address and from link-local ones, but not from those of the host and
/// of other pods, and announces no others.
fn of_ipv6(range: Range, address: Ipv4Addr) -> Vec<Rule> {
    use Match::{Neighbour, NeighbourTarget, NotNeighbourTarget, NotSource, Source};
    let six = |mut matches: Vec<Match>, action| {
        matches.insert(0, Match::Protocol(EtherType::Ip6));
        rule(matches, action)
    };
    let one = |address: Ipv6Addr| Cidr::v6(address, 128);
    let link = one(link_of(mac_of(address)));
    let router = one(IPV6_ROUTER);
    let own = range.ipv6_of(address).map(|own| Cidr {
        prefix_length: 128,
        ..own
    });
    let advertisement = || Neighbour(NeighbourMessage::Advertisement);
    let mut foreign = vec![advertisement(), NotNeighbourTarget(LINK_LOCAL)];
    foreign.extend(own.map(NotNeighbourTarget));
    let mut rules = vec![
        six(
            vec![Neighbour(NeighbourMessage::RouterAdvertisement)],
            Action::Drop,
        ),
        six(vec![Neighbour(NeighbourMessage::Redirect)], Action::Drop),
        six(vec![Source(router)], Action::Drop),
        six(vec![Source(range.links()), NotSource(link)], Action::Drop),
        six(foreign, Action::Drop),
        six(vec![advertisement(), NeighbourTarget(router)], Action::Drop),
        six(
            vec![
                advertisement(),
                NeighbourTarget(range.links()),
                NotNeighbourTarget(link),
            ],
            Action::Drop,
        ),
    ];
    let sources = [LINK_LOCAL, one(Ipv6Addr::UNSPECIFIED)];
    let accepted = own.into_iter().chain(sources);
    rules.extend(accepted.map(|source| six(vec![Source(source)], Action::Accept)));
    rules
}

#[cfg(test)]
mod tests {
    use net_plan::MacAddress;

    use super::*;
    use crate::senders::Chosen;

    #[test]
    fn link_passes_packets_of_its_pod() {
        let range = Range::parse("10.244.0.0/24".parse().unwrap()).unwrap();
        let dual = range.with_ipv6(Some("fd00:10:244::/64".parse().unwrap()));
        let lease = Lease {
            address: [10, 244, 0, 2].into(),
            mac: String::new(),
            veth: "veth0".to_owned(),
            senders: Senders::Own,
        };
        assert_eq!(
            table("t", range, [&lease]).to_string(),
            "table netdev t {\n\
             \tchain veth0 {\n\
             \t\ttype filter hook ingress priority filter; policy accept;\n\
             \t\tether saddr != 0a:58:0a:f4:00:02 counter drop\n\
             \t\tmeta protocol ip ip saddr 10.244.0.2 counter accept\n\
             \t\tmeta protocol arp arp saddr ip 10.244.0.2 counter accept\n\
             \t\tmeta protocol arp arp saddr ip 0.0.0.0 counter accept\n\
             \t\tmeta protocol ip6 icmpv6 type nd-router-advert counter drop\n\
             \t\tmeta protocol ip6 icmpv6 type nd-redirect counter drop\n\
             \t\tmeta protocol ip6 ip6 saddr fe80::1 counter drop\n\
             \t\tmeta protocol ip6 ip6 saddr fe80::858:aff:fef4:0/120 ip6 saddr != fe80::858:aff:fef4:2 counter drop\n\
             \t\tmeta protocol ip6 icmpv6 type nd-neighbor-advert @th,64,64 != 0xfe80000000000000 counter drop\n\
             \t\tmeta protocol ip6 icmpv6 type nd-neighbor-advert @th,64,128 0xfe800000000000000000000000000001 \
             counter drop\n\
             \t\tmeta protocol ip6 icmpv6 type nd-neighbor-advert @th,64,120 0xfe8000000000000008580afffef400 \
             @th,64,128 != 0xfe8000000000000008580afffef40002 counter drop\n\
             \t\tmeta protocol ip6 ip6 saddr fe80::/64 counter accept\n\
             \t\tmeta protocol ip6 ip6 saddr :: counter accept\n\
             \t\tcounter drop\n\
             \t}\n}\n"
        );
        let rules = table("t", dual.unwrap(), [&lease]).to_string();
        for rule in [
            "@th,64,64 != 0xfe80000000000000 @th,64,128 != 0xfd000010024400000000000000000002 counter drop",
            "meta protocol ip6 ip6 saddr fd00:10:244::2 counter accept",
        ] {
            assert!(rules.contains(rule), "{rule}");
        }
        let guest = Chosen::new(MacAddress([2, 0, 0, 0, 0, 9]), None);
        for (senders, expected) in [
            (
                Senders::Any,
                "@ll,48,40 0x0a580af400 ether saddr != 0a:58:0a:f4:00:02 counter drop",
            ),
            (
                Senders::Guest(guest),
                "ether saddr != 0a:58:0a:f4:00:02 ether saddr != 02:00:00:00:00:09 counter drop",
            ),
        ] {
            let lease = Lease {
                senders,
                ..lease.clone()
            };
            let rules = table("t", range, [&lease]).to_string();
            let line = format!("\t\t{expected}\n");
            assert!(rules.contains(&line), "{rules}");
        }
    }
}
