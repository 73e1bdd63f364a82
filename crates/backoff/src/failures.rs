//! Counts of consecutive failures, of one thing or of many objects.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::Delays;

/// From this many consecutive failures on they are worth a warning.
const WARN_FROM: u32 = 4;

/// One more failure in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Consecutive failures, this one included.
    pub count: u32,
    /// The delay before the next attempt.
    pub delay: Duration,
}

/// The level at which to log a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Debug,
    Warn,
}

impl Failure {
    pub fn severity(&self) -> Severity {
        Severity::of(self.count)
    }
}

impl Severity {
    /// The level for the last of so many consecutive failures.
    ///
    /// The first failures are logged at debug level: most pass by themselves. Of those that stay,
    /// the 4th, 8th, 16th and so on is a warning, so that a permanent failure neither hides nor
    /// floods the log.
    pub fn of(count: u32) -> Self {
        if count >= WARN_FROM && count.is_power_of_two() {
            Self::Warn
        } else {
            Self::Debug
        }
    }

    /// Whether so many consecutive failures included a warning, so that a success after them is
    /// worth a line as well.
    pub fn has_warned(count: u32) -> bool {
        count >= WARN_FROM
    }
}

/// The attempts at one thing.
#[derive(Debug, Clone)]
pub struct Backoff {
    delays: Delays,
    failures: u32,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            delays: Delays::new(first, longest),
            failures: 0,
        }
    }

    /// The pause before the next attempt, which is taken to fail: none before the first, then
    /// growing.
    pub fn pause(&mut self) -> Duration {
        let pause = self.delays.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Counts a failed attempt.
    pub fn failed(&mut self) -> Failure {
        self.failures = self.failures.saturating_add(1);
        Failure {
            count: self.failures,
            delay: self.delays.after(self.failures),
        }
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Consecutive failures of each object, with jittered delays.
#[derive(Debug)]
pub struct Failures<K> {
    delays: Delays,
    counts: HashMap<K, u32>,
}

impl<K: Hash + Eq> Failures<K> {
    pub fn new(delays: Delays) -> Self {
        Self {
            delays,
            counts: HashMap::new(),
        }
    }

    /// Counts a failure of an object.
    pub fn failed(&mut self, key: K) -> Failure {
        let count = self.count(&key).saturating_add(1);
        let delay = self.delays.jittered(count, &key);
        self.counts.insert(key, count);
        Failure { count, delay }
    }

    /// Forgets the failures of an object and returns how many there were.
    pub fn succeeded(&mut self, key: &K) -> u32 {
        self.counts.remove(key).unwrap_or(0)
    }

    /// How many objects have failed and not succeeded since.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
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
    fn first_attempt_is_immediate_and_pauses_grow() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
        let pauses: Vec<_> = (0..4).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [0, 100, 200, 300]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::ZERO);
    }

    #[test]
    fn failures_of_each_object_are_counted_until_it_succeeds() {
        let delays = Delays::new(Duration::from_secs(1), Duration::from_secs(8));
        let mut failures = Failures::new(delays);
        for base in [1, 2, 4, 8, 8, 8] {
            let delay = failures.failed("a").delay;
            let base = Duration::from_secs(base);
            assert!(delay >= base && delay <= base * 5 / 4, "{delay:?} {base:?}");
        }
        assert_eq!((failures.count(&"a"), failures.count(&"b")), (6, 0));
        assert_eq!(failures.len(), 1);
        assert_eq!(failures.succeeded(&"a"), 6);
        assert!(failures.failed("a").delay < Duration::from_secs(2));
    }

    #[test]
    fn repeated_failures_escalate_to_warnings_that_grow_rare() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        let warned: Vec<u32> = (0..100)
            .map(|_| backoff.failed())
            .filter(|failure| failure.severity() == Severity::Warn)
            .map(|failure| failure.count)
            .collect();
        assert_eq!(warned, [4, 8, 16, 32, 64]);
        assert!(Severity::has_warned(5) && !Severity::has_warned(3));
    }
}
