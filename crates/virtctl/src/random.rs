//! The random end of a generated name.

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

#[cfg(test)]
mod tests {
    use super::*;

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
