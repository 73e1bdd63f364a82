//! A limit on how often something happens in a second.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the events in the current second.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: u32,
    since: Option<Instant>,
    count: u32,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second,
            since: None,
            count: 0,
        }
    }

    /// Whether one more event is within the limit.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        let fresh = |since: Instant| now.duration_since(since) < Duration::from_secs(1);
        if !self.since.is_some_and(fresh) {
            self.since = Some(now);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count <= self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_limited_in_each_second() {
        let mut rate = Rate::new(20);
        let start = Instant::now();
        let allowed = (0..100).filter(|_| rate.allows(start)).count();
        assert_eq!(allowed, 20);
        assert!(rate.allows(start + Duration::from_secs(1)));
    }
}
