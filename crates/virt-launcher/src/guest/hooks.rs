//! Running the hook sidecars of the guest's plan.

use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{Hooks, Prepare, StopReason};
use tokio::time::Instant;

use super::ending::Ending;
use super::refusal::Refusal;
use super::start::MAX_STARTS;
use super::status::Status;
use super::task::Guest;
use crate::hooks::{self, Asked, HookError};

/// How long a sidecar may take to open its socket, over all tries: in its first minutes a container may be started
/// several times.
const PATIENCE: Duration = Duration::from_mins(5);

impl Guest {
    /// The plan as its sidecars change it; `None` for a plan without sidecars.
    pub(super) async fn ask_hooks(&mut self) -> Result<Option<Asked>, Refusal> {
        let Some(record) = self.store.record() else {
            return Ok(None);
        };
        let Some(hooks) = &record.plan.hooks else {
            return Ok(None);
        };
        let asked = Box::pin(hooks::ask(&record.plan, hooks, &self.tasks)).await;
        match asked {
            Ok(asked) => {
                self.hooks_awaited_since = None;
                Ok(Some(asked))
            }
            Err(error) => Err(self.hooks_failed(error).await?),
        }
    }

    /// The steps of the plan as the sidecars change the seeds.
    pub(super) async fn steps_after_hooks(&self) -> Result<Vec<Prepare>, Refusal> {
        let Some(record) = self.store.record() else {
            return Ok(Vec::new());
        };
        match &record.plan.hooks {
            None => Ok(record.plan.prepare.clone()),
            Some(hooks) => {
                let asked = hooks::ask_for_seeds(&record.plan, hooks, &self.tasks);
                Ok(Box::pin(asked).await?)
            }
        }
    }

    /// The refusal of this try. After some failures the guest cannot be started: the next one gets a pod of its own,
    /// with the sidecars and scripts of that time.
    async fn hooks_failed(&mut self, error: HookError) -> Result<Refusal, Refusal> {
        let is_over = if error.is_not_ready() {
            let since = *self.hooks_awaited_since.get_or_insert_with(Instant::now);
            since.elapsed() >= PATIENCE
        } else {
            self.store.count_failed_start()? >= MAX_STARTS
        };
        if is_over {
            let why = error_chain(&error);
            let ending = Ending {
                note: Some(format!(
                    "a hook sidecar keeps the guest from starting: {why}"
                )),
                signal: None,
            };
            self.store.end(StopReason::StartFailed, ending)?;
            self.apply(Status::Ended(StopReason::StartFailed)).await?;
        }
        Ok(Refusal::Hook(error))
    }

    /// Calls the sidecars' hook for the end of the guest.
    pub(super) async fn end_hooks(&self) {
        let hooks: Option<&Hooks> = self
            .store
            .record()
            .and_then(|record| record.plan.hooks.as_ref());
        if let Some(hooks) = hooks {
            hooks::shut_down(hooks).await;
        }
    }
}
