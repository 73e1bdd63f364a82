//! Rate limit of a launcher's messages: beyond it, messages are read more slowly.

use std::time::Duration;

use tokio::time::Instant;

/// Messages accepted without delay: replies to all requests in flight, and state changes.
const BURST: u32 = 64;
/// Interval at which one more message is accepted.
const INTERVAL: Duration = Duration::from_millis(125);

/// A token bucket, stored as the time at which it is full again.
#[derive(Debug)]
pub(super) struct RateLimit {
    full_at: Instant,
}

impl RateLimit {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Counts one message; returns the wait before the next one may be read.
    pub(super) fn count(&mut self, now: Instant) -> Duration {
        self.full_at = self.full_at.max(now) + INTERVAL;
        let allowed = now + INTERVAL * BURST;
        self.full_at.saturating_duration_since(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_free_and_flood_is_slowed_down() {
        let start = Instant::now();
        let mut limit = RateLimit::new(start);
        for _ in 0..BURST {
            assert_eq!(limit.count(start), Duration::ZERO);
        }
        let mut now = start;
        for _ in 0..100 {
            now += limit.count(now);
        }
        assert_eq!(now - start, INTERVAL * 100);
        // After a pause the full burst is available again.
        now += INTERVAL * BURST;
        assert_eq!(limit.count(now), Duration::ZERO);
    }
}
