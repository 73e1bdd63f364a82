//! A graceful end: the power button again and again, and the plug when the grace is over.

use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::DomainState;
use tokio::time::Instant;

use super::Guest;
use super::judge::Verdict;

/// A guest that is still booting misses the button; one that is shutting down does not mind it.
const PRESS_EVERY: Duration = Duration::from_secs(5);
/// When the plug could not be pulled.
const PULL_AGAIN: Duration = Duration::from_secs(1);

/// A shutdown under way.
#[derive(Debug)]
pub(super) struct Shutdown {
    deadline: Instant,
    next: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Wait,
    PressButton,
    PullPlug,
}

impl Shutdown {
    fn new(now: Instant, grace: Duration) -> Self {
        Self {
            deadline: now + grace,
            next: now,
        }
    }

    /// A later wish can only make it shorter.
    fn hurry(&mut self, now: Instant, grace: Duration) {
        self.deadline = self.deadline.min(now + grace);
        self.next = self.next.min(self.deadline);
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// What is due now; the next thing is scheduled.
    fn step(&mut self, now: Instant) -> Step {
        if now >= self.deadline {
            self.next = now + PULL_AGAIN;
            Step::PullPlug
        } else if now >= self.next {
            self.next = (now + PRESS_EVERY).min(self.deadline);
            Step::PressButton
        } else {
            Step::Wait
        }
    }
}

impl Guest {
    /// Notes the wish; [`Guest::tick_shutdown`] acts on it.
    pub(super) fn begin_shutdown(&mut self, grace_seconds: u64) {
        if !matches!(self.verdict, None | Some(Verdict::Alive(_))) {
            return;
        }
        // No grace is longer than a day, and a sum of times must not overflow.
        let grace = Duration::from_secs(grace_seconds).min(Duration::from_hours(24));
        let now = Instant::now();
        match &mut self.shutdown {
            Some(shutdown) => shutdown.hurry(now, grace),
            None => self.shutdown = Some(Shutdown::new(now, grace)),
        }
        self.tell();
    }

    /// Does what is due. Failures are not the end: the next tick comes.
    pub(super) async fn tick_shutdown(&mut self) {
        if self.link.is_none() || !matches!(self.verdict, Some(Verdict::Alive(_))) {
            return self.postpone_shutdown();
        }
        let Some(shutdown) = &mut self.shutdown else {
            return;
        };
        let done = match shutdown.step(Instant::now()) {
            Step::Wait => Ok(()),
            Step::PressButton => self.press_button().await,
            Step::PullPlug => {
                tracing::info!("the grace is over");
                self.act(async |to, domain| {
                    to.destroy(domain).await?;
                    failpoints::after("virt-launcher/guest/pull-plug");
                    Ok(())
                })
                .await
            }
        };
        if let Err(err) = done {
            tracing::warn!(err = error_chain(&err), "the shutdown does not go on");
        }
    }

    /// Without a connection nothing can be done; the timer must not spin meanwhile.
    fn postpone_shutdown(&mut self) {
        let soon = Instant::now() + Duration::from_millis(50);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.next = shutdown.next.max(soon);
        }
    }

    async fn press_button(&mut self) -> Result<(), super::Refusal> {
        if matches!(
            self.verdict,
            Some(Verdict::Alive(DomainState::PausedByUser))
        ) {
            tracing::info!("the guest is paused: it goes on, so that it can shut down");
            self.act(async |to, domain| to.resume(domain).await).await?;
        }
        tracing::info!("pressing the power button");
        self.act(async |to, domain| {
            to.press_power_button(domain).await?;
            failpoints::after("virt-launcher/guest/press-button");
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::Step::{PressButton, PullPlug, Wait};
    use super::*;

    #[test]
    fn the_button_is_pressed_until_the_grace_is_over() {
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
                PullPlug,
                PullPlug
            ]
        );
    }

    #[test]
    fn a_later_wish_only_makes_it_shorter() {
        let start = Instant::now();
        let mut shutdown = Shutdown::new(start, Duration::from_mins(1));
        assert_eq!(shutdown.step(start), PressButton);
        shutdown.hurry(start, Duration::from_secs(90));
        assert_eq!(shutdown.deadline, start + Duration::from_mins(1));
        shutdown.hurry(start, Duration::from_secs(1));
        assert_eq!(shutdown.next(), start + Duration::from_secs(1));
        assert_eq!(shutdown.step(start + Duration::from_secs(1)), PullPlug);
    }
}
