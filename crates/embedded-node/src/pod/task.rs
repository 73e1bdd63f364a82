//! The progress of one step that is retried with exponential back-off.

use std::time::Duration;

use backoff::Delays;
use tokio::time::Instant;

use super::plan::Stage;
use crate::Failure;

#[derive(Debug)]
pub(crate) struct Task<T> {
    state: State<T>,
    failures: u32,
    backoff: Backoff,
}

#[derive(Debug)]
enum State<T> {
    Todo,
    Busy,
    Done(T),
    Failed { failure: Failure, retry_at: Instant },
}

/// The delays after failures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff(Delays);

impl Backoff {
    /// For work on this host.
    pub(crate) const LOCAL: Self = Self(Delays::new(
        Duration::from_millis(500),
        Duration::from_mins(2),
    ));
    /// For networks, whose definitions users mend: a pod starts soon after that.
    pub(crate) const NETWORK: Self = Self(Delays::new(
        Duration::from_millis(500),
        Duration::from_secs(10),
    ));
    /// For registries.
    pub(crate) const PULL: Self =
        Self(Delays::new(Duration::from_secs(10), Duration::from_mins(5)));
}

impl<T> Task<T> {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            state: State::Todo,
            failures: 0,
            backoff,
        }
    }

    pub(crate) fn done(value: T) -> Self {
        Self {
            state: State::Done(value),
            failures: 0,
            backoff: Backoff::LOCAL,
        }
    }

    pub(crate) fn stage(&self, now: Instant) -> Stage {
        match &self.state {
            State::Todo => Stage::Todo,
            State::Failed { retry_at, .. } if *retry_at <= now => Stage::Todo,
            State::Failed { .. } => Stage::Waiting,
            State::Busy => Stage::Busy,
            State::Done(_) => Stage::Done,
        }
    }

    pub(crate) fn begin(&mut self) {
        self.state = State::Busy;
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.backoff);
    }

    pub(crate) fn finish(&mut self, result: Result<T, Failure>) {
        match result {
            Ok(value) => {
                *self = Self {
                    state: State::Done(value),
                    failures: 0,
                    ..*self
                }
            }
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                let delay = self.backoff.0.after(self.failures);
                self.state = State::Failed {
                    failure,
                    retry_at: Instant::now() + delay,
                };
            }
        }
    }

    pub(crate) fn value(&self) -> Option<&T> {
        match &self.state {
            State::Done(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        match &self.state {
            State::Failed { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// How often it failed in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match &self.state {
            State::Failed { retry_at, .. } => Some(*retry_at),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use reasons::Reason;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retry_delay_doubles_up_to_a_limit() {
        let mut task: Task<()> = Task::new(Backoff::PULL);
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            task.begin();
            assert_eq!(task.stage(Instant::now()), Stage::Busy);
            task.finish(Err(Failure::new(Reason::Failed, "x")));
            let wait = task.retry_at().unwrap() - Instant::now();
            assert_eq!(wait, Duration::from_secs(seconds));
            assert_eq!(task.stage(Instant::now()), Stage::Waiting);
            tokio::time::advance(wait).await;
            assert_eq!(task.stage(Instant::now()), Stage::Todo);
        }
        task.finish(Ok(()));
        assert_eq!(
            (task.stage(Instant::now()), task.failures()),
            (Stage::Done, 0)
        );
    }
}
