//! What a pod may send through its link: packets from its own address alone, so that no pod takes another's address
//! or becomes its router.
//!
//! Each link has a chain of its own, at the hook where its packets arrive: before the bridge learns from them.

use net_plan::nft::{
    Action, Chain, EtherType, Family, Hook, HookKind, HookPoint, Match, Rule, Table,
};

use crate::{
    lease::Lease,
    settings::{Range, mac_of},
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
    use EtherType::{Arp, Ip, Ip6};
    use Match::{
        ArpSender, NotSourceMac, Protocol, RouterAdvertisement, Source, SourceMacBeginsWith,
    };
    let rule = |matches: Vec<Match>, action| Rule { matches, action };
    let address = lease.address;
    let own = net_plan::Cidr::v4(address, 32);
    let probe = std::net::Ipv4Addr::UNSPECIFIED;
    Chain {
        name: lease.veth.clone(),
        hook: Some(Hook {
            kind: HookKind::Filter,
            point: HookPoint::Ingress,
            priority: 0,
        }),
        rules: vec![
            // MAC addresses of other pods: the bridge would learn that they are at this link. Others pass, as guests may
            // have addresses of their own.
            rule(
                vec![
                    SourceMacBeginsWith(range.mac_prefix()),
                    NotSourceMac(mac_of(address)),
                ],
                Action::Drop,
            ),
            rule(vec![Protocol(Ip), Source(own)], Action::Accept),
            rule(vec![Protocol(Arp), ArpSender(address)], Action::Accept),
            // An ARP probe asks whether an address is in use; no host stores its sender.
            rule(vec![Protocol(Arp), ArpSender(probe)], Action::Accept),
            rule(vec![Protocol(Ip6), RouterAdvertisement], Action::Drop),
            rule(vec![Protocol(Ip6)], Action::Accept),
            // Frames within frames of VLAN 0 as well, which the receiver takes out.
            rule(Vec::new(), Action::Drop),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_passes_packets_of_its_pod() {
        let range = Range::parse("10.244.0.0/24".parse().unwrap()).unwrap();
        let lease = Lease {
            address: [10, 244, 0, 2].into(),
            mac: String::new(),
            veth: "veth0".to_owned(),
        };
        assert_eq!(
            table("t", range, [&lease]).to_string(),
            "table netdev t {\n\
             \tchain veth0 {\n\
             \t\ttype filter hook ingress priority filter; policy accept;\n\
             \t\t@ll,48,40 0x0a580af400 ether saddr != 0a:58:0a:f4:00:02 counter drop\n\
             \t\tmeta protocol ip ip saddr 10.244.0.2 counter accept\n\
             \t\tmeta protocol arp arp saddr ip 10.244.0.2 counter accept\n\
             \t\tmeta protocol arp arp saddr ip 0.0.0.0 counter accept\n\
             \t\tmeta protocol ip6 icmpv6 type nd-router-advert counter drop\n\
             \t\tmeta protocol ip6 counter accept\n\
             \t\tcounter drop\n\
             \t}\n}\n"
        );
    }
}
