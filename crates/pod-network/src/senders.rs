//! The hardware addresses from which a pod may send: its own, and that of its guest if the guest chose one. A guest
//! has its address for itself: the bridge would send its packets to any pod that sends from it.

use net_plan::MacAddress;
use serde::{Deserialize, Serialize};

/// As leases keep it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Senders {
    /// Any but those of other pods: leases of versions that did not know the guests' addresses.
    #[default]
    Any,
    /// The pod's own.
    Own,
    /// The guest's, too.
    Guest(Chosen),
}

/// A hardware address that a guest chose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chosen {
    mac: String,
    /// Pods of one owner may have it at once, as while a guest moves.
    owner: Option<String>,
}

impl Chosen {
    pub(crate) fn new(mac: MacAddress, owner: Option<&str>) -> Self {
        Self {
            mac: mac.to_string(),
            owner: owner.map(str::to_owned),
        }
    }

    /// Whether both are the same address of different guests.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        self.mac == other.mac && (self.owner.is_none() || self.owner != other.owner)
    }
}

impl Senders {
    pub(crate) fn chosen(&self) -> Option<&Chosen> {
        match self {
            Self::Any | Self::Own => None,
            Self::Guest(chosen) => Some(chosen),
        }
    }

    /// The guest's address.
    pub(crate) fn guest_mac(&self) -> Option<MacAddress> {
        self.chosen()?.mac.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_shared_by_pods_of_one_owner_alone() {
        let mac = |last: u8| MacAddress([2, 0, 0, 0, 0, last]);
        for (one, other, expected) in [
            ((9, None), (9, None), true),
            ((9, Some("a")), (9, None), true),
            ((9, None), (9, Some("a")), true),
            ((9, Some("a")), (9, Some("b")), true),
            ((9, Some("a")), (9, Some("a")), false),
            ((9, None), (8, None), false),
        ] {
            let [first, second] = [one, other].map(|(last, owner)| Chosen::new(mac(last), owner));
            assert_eq!(first.conflicts_with(&second), expected, "{one:?} {other:?}");
            assert_eq!(Senders::Guest(first).guest_mac(), Some(mac(one.0)));
        }
    }
}
