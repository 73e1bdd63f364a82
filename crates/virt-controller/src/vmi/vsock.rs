//! The address of a guest on the vsock: a number that no other guest of the cluster has.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Lower numbers are the hypervisor, the loopback and the host.
const FIRST: u32 = 3;
/// The highest number means any address.
const COUNT: u32 = u32::MAX - FIRST;

/// The address of the guest with that UID: it follows from the UID, so that guests that start at the
/// same time get different ones, unless another guest has it already.
pub(super) fn address(uid: &str, used: &BTreeSet<u32>) -> u32 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let start = u32::try_from(hasher.finish() % u64::from(COUNT)).unwrap_or(0);
    let mut addresses = (0..COUNT).map(|step| FIRST + (start.wrapping_add(step)) % COUNT);
    // There are fewer guests than addresses.
    addresses
        .find(|address| !used.contains(address))
        .unwrap_or(FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_stable_unused_and_not_reserved() {
        let mut used = BTreeSet::new();
        let first = address("a", &used);
        assert_eq!(address("a", &used), first);
        assert!((FIRST..u32::MAX).contains(&first));
        assert_ne!(address("b", &used), first);
        used.insert(first);
        let second = address("a", &used);
        assert_ne!(second, first);
        assert!((FIRST..u32::MAX).contains(&second));
    }
}
