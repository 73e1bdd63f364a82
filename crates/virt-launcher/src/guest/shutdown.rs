//! Graceful shutdown: repeated ACPI power button events, and a destroy after the grace period.

use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::DomainState;
use tokio::time::Instant;

use super::refusal::Refusal;
use super::status::Status;
use super::task::Guest;

/// A guest that is still booting ignores the button; one that is shutting down is not disturbed.
const PRESS_INTERVAL: Duration = Duration::from_secs(5);
/// The delay after a failed destroy.
const DESTROY_RETRY: Duration = Duration::from_secs(1);

/// A shutdown in progress.
#[derive(Debug)]
pub(super) struct Shutdown {
    deadline: Instant,
    next: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Wait,
    PressButton,
    Destroy,
}

impl Shutdown {
    fn new(now: Instant, grace: Duration) -> Self {
        Self {
            deadline: now + grace,
            next: now,
        }
    }

    /// A later request can only shorten the grace period.
    fn shorten(&mut self, now: Instant, grace: Duration) {
        self.deadline = self.deadline.min(now + grace);
        self.next = self.next.min(self.deadline);
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// The step to take now; schedules the next one.
    fn step(&mut self, now: Instant) -> Step {
        if now >= self.deadline {
            self.next = now + DESTROY_RETRY;
            Step::Destroy
        } else if now >= self.next {
            self.next = (now + PRESS_INTERVAL).min(self.deadline);
            Step::PressButton
        } else {
            Step::Wait
        }
    }
}

impl Guest {
    /// Schedules the shutdown, which [`Guest::tick_shutdown`] carries out.
    pub(super) fn begin_shutdown(&mut self, grace_seconds: u64) {
        if !matches!(self.status, None | Some(Status::Alive(_))) {
            return;
        }
        // A bound, since the sum of times must not overflow.
        let grace = Duration::from_secs(grace_seconds).min(Duration::from_hours(24));
        let now = Instant::now();
        match &mut self.shutdown {
            Some(shutdown) => shutdown.shorten(now, grace),
            None => self.shutdown = Some(Shutdown::new(now, grace)),
        }
        self.publish();
    }

    /// Takes the pending step. A failed one is repeated at the next tick.
    pub(super) async fn tick_shutdown(&mut self) {
        if self.link.is_none() || !matches!(self.status, Some(Status::Alive(_))) {
            return self.postpone_shutdown();
        }
        let Some(shutdown) = &mut self.shutdown else {
            return;
        };
        let done = match shutdown.step(Instant::now()) {
            Step::Wait => Ok(()),
            Step::PressButton => self.press_button().await,
            Step::Destroy => {
                tracing::info!("the grace period is over: destroying the guest");
                self.call(async |to, domain| {
                    to.destroy(domain).await?;
                    failpoints::after("virt-launcher/guest/destroy-after-grace");
                    Ok(())
                })
                .await
            }
        };
        if let Err(error) = done {
            tracing::warn!(error = error_chain(&error), "shutdown step failed");
        }
    }

    /// Without a connection no step can be taken; the timer must not spin until there is one.
    fn postpone_shutdown(&mut self) {
        let soon = Instant::now() + Duration::from_millis(50);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.next = shutdown.next.max(soon);
        }
    }

    async fn press_button(&mut self) -> Result<(), Refusal> {
        if matches!(self.status, Some(Status::Alive(DomainState::PausedByUser))) {
            tracing::info!("resuming the paused guest so that it can shut down");
            self.call(async |to, domain| to.resume(domain).await)
                .await?;
        }
        tracing::info!("pressing the power button");
        self.call(async |to, domain| {
            to.press_power_button(domain).await?;
            failpoints::after("virt-launcher/guest/press-power-button");
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::Step::{Destroy, PressButton, Wait};
    use super::*;

    #[test]
    fn button_is_pressed_until_the_grace_period_is_over() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut shutdown = Shutdown::new(start, Duration::from_secs(12));
        let mut steps = Vec::new();
        for second in [0, 1, 5, 10, 12, 13] {
            steps.push(shutdown.step(at(second)));
        }
        assert_eq!(
            steps,
            [
                PressButton,
                Wait,
                PressButton,
                PressButton,
                Destroy,
                Destroy
            ]
        );
    }

    #[test]
    fn later_request_only_shortens_the_grace_period() {
        let start = Instant::now();
        let mut shutdown = Shutdown::new(start, Duration::from_mins(1));
        assert_eq!(shutdown.step(start), PressButton);
        shutdown.shorten(start, Duration::from_secs(90));
        assert_eq!(shutdown.deadline, start + Duration::from_mins(1));
        shutdown.shorten(start, Duration::from_secs(1));
        assert_eq!(shutdown.next(), start + Duration::from_secs(1));
        assert_eq!(shutdown.step(start + Duration::from_secs(1)), Destroy);
    }
}
