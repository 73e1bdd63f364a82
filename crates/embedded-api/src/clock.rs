//! The current time, for timestamps on objects.
//!
//! Invariant: the only place in this crate that reads the wall clock; timers use tokio's.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of the current time.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The system clock.
    Wall,
    /// Starts at a given time and follows tokio's clock, so that tests can pause it.
    Tokio { start: Timestamp, origin: Instant },
    /// Always the same time, so that tests can compare timestamps however long they take.
    Fixed(Timestamp),
}

impl Clock {
    /// Follows tokio's clock from `start` on.
    pub fn tokio_from(start: Timestamp) -> Self {
        Self::Tokio {
            start,
            origin: Instant::now(),
        }
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::Wall => Timestamp::now(),
            Self::Fixed(time) => *time,
            Self::Tokio { start, origin } => {
                let passed =
                    SignedDuration::try_from(origin.elapsed()).unwrap_or(SignedDuration::MAX);
                start.checked_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}
