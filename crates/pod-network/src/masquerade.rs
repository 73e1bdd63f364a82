//! Address translation for traffic that leaves a range of pods.

use net_plan::{
    Cidr,
    nft::{Action, Chain, Family, Hook, HookKind, HookPoint, Match, Rule, Table},
};

/// Masquerades it. Packets to a link-local address stay on their link.
pub(crate) fn masquerade(name: &str, range: Cidr) -> Table {
    let leaving = Rule {
        matches: vec![Match::Source(range), Match::NotDestination(range)],
        action: Action::Masquerade,
    };
    let hook = Hook {
        kind: HookKind::Nat,
        point: HookPoint::Postrouting,
        priority: 100,
    };
    let family = if range.address.is_ipv6() {
        Family::Ip6
    } else {
        Family::Ip
    };
    Table {
        family,
        name: name.to_owned(),
        chains: vec![Chain {
            name: "postrouting".to_owned(),
            hook: Some(hook),
            rules: vec![leaving],
        }],
    }
}
