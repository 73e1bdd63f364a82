//! The wait until the next check of certificates. It ends early when the clock has jumped: a certificate that
//! was valid for hours may have expired, or may not be valid yet.

use std::{ops::Range, time::Duration};

use jiff::Timestamp;

/// Interval of the checks of the clock, which are cheap.
const TICK: Duration = Duration::from_secs(30);

/// Waits for a duration, at most while the clock is within `times`.
pub(crate) async fn pause(wait: Duration, times: &Range<Timestamp>, clock: impl Fn() -> Timestamp) {
    let mut left = wait;
    while !left.is_zero() {
        let part = left.min(TICK);
        tokio::time::sleep(part).await;
        left -= part;
        if !times.contains(&clock()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_jump_ends_the_wait() {
        let hour = SignedDuration::from_hours(1);
        let now = Timestamp::UNIX_EPOCH.checked_add(hour).unwrap();
        let times = now..now.checked_add(hour).unwrap();
        let wait = Duration::from_mins(10);
        let back = now.checked_sub(hour).unwrap();
        let on = now.checked_add(hour * 2).unwrap();
        for (clock, expected) in [(now, wait), (back, TICK), (on, TICK)] {
            let began = Instant::now();
            pause(wait, &times, || clock).await;
            assert_eq!(began.elapsed(), expected, "{clock}");
        }
    }
}
