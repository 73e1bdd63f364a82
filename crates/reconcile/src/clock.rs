//! Wall-clock time that a test can pause.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The source of timestamps in objects.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Source);

#[derive(Debug, Clone, Copy)]
enum Source {
    System,
    /// A fixed start plus the time that tokio's clock has advanced since.
    Tokio {
        start: Timestamp,
        since: Instant,
    },
}

impl Clock {
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that starts at the given time and follows tokio's, which a test may pause and
    /// advance. Call it inside a runtime.
    pub fn starting_at(start: Timestamp) -> Self {
        Self(Source::Tokio {
            start,
            since: Instant::now(),
        })
    }

    /// Now, in whole seconds: finer times do not survive the wire format of most fields.
    pub fn now(&self) -> Timestamp {
        let now = match self.0 {
            Source::System => Timestamp::now(),
            Source::Tokio { start, since } => SignedDuration::try_from(since.elapsed())
                .ok()
                .and_then(|elapsed| start.checked_add(elapsed).ok())
                .unwrap_or(Timestamp::MAX),
        };
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }
}
