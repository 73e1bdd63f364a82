//! When to resume a guest that an I/O error paused: the storage may have recovered. The delay grows
//! as long as it fails again.

use std::time::Duration;

use backoff::Backoff;
use tokio::time::Instant;

const FIRST_DELAY: Duration = Duration::from_secs(10);
const MAX_DELAY: Duration = Duration::from_mins(3);

/// When to try again.
#[derive(Debug)]
pub(super) struct IoRetry {
    backoff: Backoff,
    due: Option<Instant>,
    last_attempt: Option<Instant>,
}

/// Whether the guest is paused by an I/O error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    Failed,
    Works,
}

impl IoRetry {
    pub(super) fn new() -> Self {
        Self {
            backoff: Backoff::new(FIRST_DELAY, MAX_DELAY),
            due: None,
            last_attempt: None,
        }
    }

    /// Schedules or cancels the next attempt by the observed state.
    pub(super) fn observe(&mut self, storage: Storage, now: Instant) {
        match storage {
            Storage::Works => self.due = None,
            Storage::Failed if self.due.is_some() => {}
            Storage::Failed => {
                // The guest has run for a while: this is a new problem.
                if self
                    .last_attempt
                    .is_none_or(|last_attempt| now > last_attempt + MAX_DELAY)
                {
                    self.backoff.reset();
                }
                self.due = Some(now + self.backoff.failed().delay);
            }
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due
    }

    /// Whether to resume the guest now. [`Self::observe`] schedules the next attempt.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
            self.last_attempt = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_to_three_minutes_and_resets_after_a_healthy_period() {
        let mut now = Instant::now();
        let mut retry = IoRetry::new();
        let mut delays = Vec::new();
        for _ in 0..7 {
            retry.observe(Storage::Failed, now);
            // A repeated observation changes nothing.
            retry.observe(Storage::Failed, now + Duration::from_secs(1));
            let due = retry.next().unwrap();
            delays.push((due - now).as_secs());
            assert!(!retry.take_due(due - Duration::from_millis(1)));
            assert!(retry.take_due(due));
            now = due;
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 180, 180]);
        retry.observe(Storage::Works, now);
        assert_eq!(retry.next(), None);
        now += MAX_DELAY + Duration::from_secs(1);
        retry.observe(Storage::Failed, now);
        assert_eq!(retry.next(), Some(now + FIRST_DELAY));
    }

    #[test]
    fn recovered_guest_is_not_resumed() {
        let now = Instant::now();
        let mut retry = IoRetry::new();
        retry.observe(Storage::Failed, now);
        retry.observe(Storage::Works, now);
        assert!(!retry.take_due(now + MAX_DELAY));
    }
}
