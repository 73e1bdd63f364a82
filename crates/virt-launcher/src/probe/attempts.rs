//! Repeats a step of the probe with a longer limit.
//!
//! A node under load is slow, not broken: only an attempt with a generous limit decides.

use std::time::Duration;

/// No attempt ended within its limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step} did not end within {limit:?}")]
pub(super) struct TimedOut {
    step: &'static str,
    /// Of the last attempt.
    limit: Duration,
}

/// Runs `attempt` under each limit in turn until one ends in time, whatever its result. An attempt
/// that exceeds its limit is dropped.
pub(super) async fn repeat<T>(
    step: &'static str,
    limits: [Duration; 2],
    mut attempt: impl AsyncFnMut() -> T,
) -> Result<T, TimedOut> {
    for limit in limits {
        if let Ok(result) = tokio::time::timeout(limit, attempt()).await {
            return Ok(result);
        }
        tracing::warn!(step, ?limit, "a step of the probe did not end in time");
    }
    let [_, limit] = limits;
    Err(TimedOut { step, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];

    /// Runs attempts that take these seconds, and returns how many were made.
    async fn run(seconds: &[u64]) -> (Result<u64, TimedOut>, usize) {
        let mut made = 0;
        let result = repeat("test", LIMITS, async || {
            let duration = seconds[made];
            made += 1;
            tokio::time::sleep(Duration::from_secs(duration)).await;
            duration
        });
        let result = result.await;
        (result, made)
    }

    #[tokio::test(start_paused = true)]
    async fn slow_attempt_is_repeated_with_the_longer_limit() {
        assert_eq!(run(&[1]).await, (Ok(1), 1));
        assert_eq!(run(&[20, 29]).await, (Ok(29), 2));
        let limit = LIMITS[1];
        let error = TimedOut {
            step: "test",
            limit,
        };
        assert_eq!(run(&[20, 31]).await, (Err(error), 2));
    }
}
