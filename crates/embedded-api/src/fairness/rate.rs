//! How fast users create events, which are many and small and expire only after an hour.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Events of a user without a pause.
const BURST: u32 = 1000;
/// One more after each of these.
const INTERVAL: Duration = Duration::from_millis(50);
/// Above this number of users, those who created nothing lately are dropped.
const MANY_USERS: usize = 1024;

/// The tokens of each user.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<String, Bucket>>);

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: u32,
    /// The time of the last token that was added.
    since: Instant,
}

impl Bucket {
    fn full(now: Instant) -> Self {
        Self {
            tokens: BURST,
            since: now,
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        let new = passed.as_millis() / INTERVAL.as_millis();
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(new).min(BURST);
        self.since += INTERVAL.saturating_mul(new);
        if self.tokens == BURST {
            self.since = now;
        }
    }

    fn take(&mut self) -> bool {
        let has_one = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        has_one
    }
}

impl Rates {
    /// Whether the user may create one more event now.
    pub(super) fn take(&self, user: &str) -> bool {
        let now = Instant::now();
        let mut users = self.0.lock();
        if users.len() > MANY_USERS {
            users.retain(|_, bucket| {
                bucket.refill(now);
                bucket.tokens < BURST
            });
        }
        let bucket = users
            .entry(user.to_owned())
            .or_insert_with(|| Bucket::full(now));
        bucket.refill(now);
        bucket.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rates: &Rates, user: &str) -> usize {
        (0..5000).take_while(|_| rates.take(user)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn flood_is_slowed_down_to_the_rate() {
        let rates = Rates::default();
        assert_eq!(taken(&rates, "a"), 1000);
        assert_eq!(taken(&rates, "b"), 1000, "others have their own");
        for (passed, more) in [(49, 0), (1, 1), (1000, 20), (3_600_000, 1000)] {
            tokio::time::advance(Duration::from_millis(passed)).await;
            assert_eq!(taken(&rates, "a"), more, "after {passed} ms more");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_users_are_forgotten() {
        let rates = Rates::default();
        for number in 0..2000 {
            tokio::time::advance(Duration::from_millis(50)).await;
            rates.take(&number.to_string());
        }
        assert!(rates.0.lock().len() <= MANY_USERS + 1);
    }
}
