//! Log levels of a failure that repeats.

use std::{error::Error, time::Duration};

use error_chain::error_chain;
use tokio::time::Instant;

/// A failure that lasts for longer is persistent: restarts of a launcher or of the API server are
/// usually over by then.
const PERSISTENT_AFTER: Duration = Duration::from_secs(10);
/// Interval of the warnings about a persistent failure.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Logs the failures of one operation: the first at info, a persistent one at warn, now and then
/// repeated, and everything between at debug.
#[derive(Debug)]
pub(crate) struct FailureLog {
    persistent_after: Duration,
    ongoing: Option<Ongoing>,
}

#[derive(Debug)]
struct Ongoing {
    since: Instant,
    attempts: u32,
    warned: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Info,
    Warn,
    Debug,
}

impl Default for FailureLog {
    fn default() -> Self {
        Self {
            persistent_after: PERSISTENT_AFTER,
            ongoing: None,
        }
    }
}

impl FailureLog {
    /// Warns from the second failure on.
    pub(crate) fn impatient() -> Self {
        Self {
            persistent_after: Duration::ZERO,
            ongoing: None,
        }
    }

    /// Logs one more failure of the operation.
    pub(crate) fn failed(&mut self, operation: &str, error: &(dyn Error + 'static)) {
        let level = self.next_level(Instant::now());
        let attempts = self.ongoing.as_ref().map_or(0, |ongoing| ongoing.attempts);
        let error = error_chain(error);
        match level {
            Level::Info => tracing::info!(operation, error, "operation failed, trying again"),
            Level::Warn => tracing::warn!(operation, error, attempts, "operation keeps failing"),
            Level::Debug => tracing::debug!(operation, error, attempts, "operation failed again"),
        }
    }

    /// Ends the series of failures.
    pub(crate) fn succeeded(&mut self, operation: &str) {
        if let Some(Ongoing {
            warned: Some(_),
            attempts,
            ..
        }) = self.ongoing.take()
        {
            tracing::info!(operation, attempts, "operation succeeded after failures");
        }
    }

    fn next_level(&mut self, now: Instant) -> Level {
        let Some(ongoing) = &mut self.ongoing else {
            self.ongoing = Some(Ongoing {
                since: now,
                attempts: 1,
                warned: None,
            });
            return Level::Info;
        };
        ongoing.attempts = ongoing.attempts.saturating_add(1);
        let warn = match ongoing.warned {
            None => now.duration_since(ongoing.since) >= self.persistent_after,
            Some(last) => now.duration_since(last) >= WARNING_INTERVAL,
        };
        if warn {
            ongoing.warned = Some(now);
            Level::Warn
        } else {
            Level::Debug
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impatient_log_warns_about_the_second_failure() {
        let mut log = FailureLog::impatient();
        let now = Instant::now();
        let levels = [now, now, now].map(|now| log.next_level(now));
        assert_eq!(levels, [Level::Info, Level::Warn, Level::Debug]);
    }

    #[test]
    fn persistent_failure_is_warned_about_once_a_minute() {
        let mut log = FailureLog::default();
        let start = Instant::now();
        let mut at = |seconds| log.next_level(start + Duration::from_secs(seconds));
        let levels: Vec<Level> = [0, 1, 9, 10, 11, 69, 70, 71].map(&mut at).into();
        assert_eq!(
            levels,
            [
                Level::Info,
                Level::Debug,
                Level::Debug,
                Level::Warn,
                Level::Debug,
                Level::Debug,
                Level::Warn,
                Level::Debug
            ]
        );
        log.succeeded("test");
        assert_eq!(log.next_level(start), Level::Info);
    }
}
