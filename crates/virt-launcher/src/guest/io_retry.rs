//! A guest whose storage failed stands still. The storage may be mended: it is let go on from time
//! to time, later each time as long as it fails again.

use std::time::Duration;

use backoff::Backoff;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(3);

/// When to try again.
#[derive(Debug)]
pub(super) struct IoRetry {
    backoff: Backoff,
    due: Option<Instant>,
    tried: Option<Instant>,
}

/// Whether the guest stands still because of its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    Fails,
    Works,
}

impl IoRetry {
    pub(super) fn new() -> Self {
        Self {
            backoff: Backoff::new(FIRST, LONGEST),
            due: None,
            tried: None,
        }
    }

    /// Takes note of the guest's state.
    pub(super) fn observe(&mut self, storage: Storage, now: Instant) {
        match storage {
            Storage::Works => self.due = None,
            Storage::Fails if self.due.is_some() => {}
            Storage::Fails => {
                // It ran well for long: this is a new trouble.
                if self.tried.is_none_or(|tried| now > tried + LONGEST) {
                    self.backoff.reset();
                }
                self.due = Some(now + self.backoff.failed().delay);
            }
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due
    }

    /// Whether to try now; the next time is up to what becomes of it.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
            self.tried = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_from_ten_seconds_to_three_minutes_and_begin_anew_after_a_good_time() {
        let mut now = Instant::now();
        let mut retry = IoRetry::new();
        let mut waits = Vec::new();
        for _ in 0..7 {
            retry.observe(Storage::Fails, now);
            // Looking again changes nothing.
            retry.observe(Storage::Fails, now + Duration::from_secs(1));
            let due = retry.next().unwrap();
            waits.push((due - now).as_secs());
            assert!(!retry.take_due(due - Duration::from_millis(1)));
            assert!(retry.take_due(due));
            now = due;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 180, 180]);
        retry.observe(Storage::Works, now);
        assert_eq!(retry.next(), None);
        now += LONGEST + Duration::from_secs(1);
        retry.observe(Storage::Fails, now);
        assert_eq!(retry.next(), Some(now + FIRST));
    }

    #[test]
    fn a_guest_that_goes_on_by_itself_is_left_alone() {
        let now = Instant::now();
        let mut retry = IoRetry::new();
        retry.observe(Storage::Fails, now);
        retry.observe(Storage::Works, now);
        assert!(!retry.take_due(now + LONGEST));
    }
}
