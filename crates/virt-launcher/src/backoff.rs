//! Exponential back-off.

use std::time::Duration;

/// Pauses that double from a first one to a longest one.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: Duration::ZERO,
        }
    }

    /// The pause before the next attempt; zero before the first one.
    pub(crate) fn pause(&mut self) -> Duration {
        let now = self.next;
        self.next = if now.is_zero() {
            self.first
        } else {
            (now * 2).min(self.longest)
        };
        now
    }

    pub(crate) fn reset(&mut self) {
        self.next = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
        let pauses: Vec<_> = (0..4).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [0, 100, 200, 300]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::ZERO);
    }
}
