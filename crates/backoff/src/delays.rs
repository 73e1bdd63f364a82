//! Exponential delays with an upper bound.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::time::Duration;

/// Delays that double from `first` to `longest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    first: Duration,
    longest: Duration,
}

impl Delays {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The delay after so many consecutive failures; none after none.
    pub fn after(self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// The same plus up to a quarter, a different part for each key and failure, so that many
    /// objects that failed together do not come back together.
    pub fn jittered(self, failures: u32, key: &impl Hash) -> Duration {
        let delay = self.after(failures);
        let hasher = BuildHasherDefault::<DefaultHasher>::new();
        let hash = hasher.hash_one((hasher.hash_one(key), failures));
        let jitter = u32::try_from(hash % 256).unwrap_or(0);
        delay + delay / 1024 * jitter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let delays = Delays::new(Duration::from_secs(10), Duration::from_mins(5));
        let seconds = |failures| delays.after(failures).as_secs();
        let found: Vec<u64> = (0..8).map(seconds).collect();
        assert_eq!(found, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(seconds(u32::MAX), 300);
    }

    #[test]
    fn jitter_adds_at_most_a_quarter_and_is_the_same_every_time() {
        let delays = Delays::new(Duration::from_secs(1), Duration::from_secs(8));
        for failures in 1..1000 {
            let (delay, jittered) = (delays.after(failures), delays.jittered(failures, &"a"));
            assert!(
                jittered >= delay && jittered <= delay * 5 / 4,
                "{jittered:?}"
            );
            assert_eq!(jittered, delays.jittered(failures, &"a"));
        }
        assert_ne!(delays.jittered(1, &"a"), delays.jittered(1, &"b"));
    }
}
