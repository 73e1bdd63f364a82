//! Random ends of generated names, and random choices.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Letters and digits that form no words and are not confused with one another; those of `generateName`.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const LENGTH: usize = 5;

/// Five random characters. Not secret, only unlikely to repeat.
pub(crate) fn suffix() -> String {
    let mut number = RandomState::new().build_hasher().finish();
    let base = ALPHABET.len() as u64;
    let mut text = String::new();
    for _ in 0..LENGTH {
        let digit = usize::try_from(number % base).unwrap_or_default();
        text.push(ALPHABET.get(digit).copied().map_or('x', char::from));
        number /= base;
    }
    text
}

/// A number below `count`, from the random numbers of the system; 0 for 0.
pub(crate) fn below(count: usize) -> usize {
    // The bits above are the version and the variant of the UUID.
    let bits = uuid::Uuid::new_v4().as_u128() & u128::from(u64::MAX >> 2);
    let number = u64::try_from(bits).unwrap_or_default();
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    let chosen = number.checked_rem(count).unwrap_or_default();
    usize::try_from(chosen).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_count_is_chosen() {
        let chosen: std::collections::BTreeSet<usize> = (0..500).map(|_| below(10)).collect();
        assert_eq!(chosen, (0..10).collect());
        assert_eq!(below(0), 0);
    }

    #[test]
    fn suffixes_are_short_names_and_differ() {
        let suffixes: std::collections::BTreeSet<String> = (0..100).map(|_| suffix()).collect();
        assert!(suffixes.len() > 95, "{suffixes:?}");
        for suffix in suffixes {
            assert_eq!(suffix.len(), LENGTH);
            assert!(
                suffix.bytes().all(|byte| ALPHABET.contains(&byte)),
                "{suffix}"
            );
        }
    }
}
