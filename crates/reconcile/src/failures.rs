//! Back-off per object.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::time::Duration;

/// How waiting grows: `first`, then twice as long each time, never above `cap`; up to a quarter
/// is added, another part for each object, so that many do not come back at once.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    pub cap: Duration,
}

impl Backoff {
    /// For failures that may pass quickly, such as a server being restarted.
    pub const RECONCILE: Self = Self {
        first: Duration::from_millis(200),
        cap: Duration::from_mins(1),
    };
    /// For watches, of which a process has few. All that is said is old while one pauses, so even
    /// after a long outage the pause is short.
    pub const WATCH: Self = Self {
        first: Duration::from_millis(800),
        cap: Duration::from_secs(6),
    };
}

/// Counts consecutive failures of each object.
#[derive(Debug)]
pub struct Failures<K> {
    backoff: Backoff,
    counts: HashMap<K, u32>,
    /// The same in each run: a history can be told again.
    jitter: BuildHasherDefault<DefaultHasher>,
}

impl<K: Hash + Eq> Failures<K> {
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            counts: HashMap::new(),
            jitter: BuildHasherDefault::new(),
        }
    }

    /// Notes one more failure and says how long to wait.
    pub fn failed(&mut self, key: K) -> Duration {
        let jitter = &self.jitter;
        let hashed = jitter.hash_one(&key);
        let count = self.counts.entry(key).or_insert(0);
        let doubled = 1_u32.checked_shl(*count).unwrap_or(u32::MAX);
        *count = count.saturating_add(1);
        let wait = self
            .backoff
            .first
            .saturating_mul(doubled)
            .min(self.backoff.cap);
        let share = u32::try_from(jitter.hash_one((hashed, *count)) % 256).unwrap_or(0);
        wait + wait / 1024 * share
    }

    /// Forgets the failures of an object.
    pub fn succeeded(&mut self, key: &K) {
        self.counts.remove(key);
    }

    /// Consecutive failures so far.
    pub fn count(&self, key: &K) -> u32 {
        self.counts.get(key).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_start_over_after_success() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            cap: Duration::from_secs(8),
        };
        let mut failures = Failures::new(backoff);
        for base in [1, 2, 4, 8, 8, 8] {
            let wait = failures.failed("a");
            let base = Duration::from_secs(base);
            assert!(
                wait >= base && wait <= base * 5 / 4,
                "{wait:?} for {base:?}"
            );
        }
        assert_eq!(failures.count(&"a"), 6);
        assert_eq!(failures.count(&"b"), 0);
        failures.succeeded(&"a");
        assert!(failures.failed("a") < Duration::from_secs(2));
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let mut failures = Failures::new(Backoff::RECONCILE);
        for _ in 0..1000 {
            assert!(failures.failed(1) <= Duration::from_secs(75));
        }
    }
}
