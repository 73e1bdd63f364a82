//! How fast a launcher may talk. One that says more is read slower, and waits.

use std::time::Duration;

use tokio::time::Instant;

/// Messages that may come at once: answers to all that is in flight, and news.
const BURST: u32 = 64;
/// One more after that time each.
const EACH: Duration = Duration::from_millis(125);

/// Counts what is left of the burst, as the time at which all of it is there again.
#[derive(Debug)]
pub(super) struct Pace {
    full_at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Counts one message; the wait before the next may be read.
    pub(super) fn count(&mut self, now: Instant) -> Duration {
        self.full_at = self.full_at.max(now) + EACH;
        let allowed = now + EACH * BURST;
        self.full_at.saturating_duration_since(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_a_flood_is_slowed_down() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert_eq!(pace.count(start), Duration::ZERO);
        }
        let mut now = start;
        for _ in 0..100 {
            now += pace.count(now);
        }
        assert_eq!(now - start, EACH * 100);
        // After a silence the burst is there again.
        now += EACH * BURST;
        assert_eq!(pace.count(now), Duration::ZERO);
    }
}
