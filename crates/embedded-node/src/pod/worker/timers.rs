//! Work that starts at a time instead of by the plan: the pod's deadline and its tokens.

use std::{sync::Arc, time::Duration};

use reasons::Reason;
use tokio::time::Instant;

use super::{
    super::{
        act,
        plan::{Intent, Stage},
    },
    Lifecycle, Outcome, Worker,
};
use crate::Failure;

impl Worker {
    /// Fails a pod that has run for its `activeDeadlineSeconds`. Returns when that will be.
    pub(super) fn enforce_deadline(&mut self) -> Option<Instant> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        if !self.lifecycle.is_active() || self.intent() != Intent::Run {
            return None;
        }
        let end = self
            .report
            .start_time()
            .checked_add(jiff::SignedDuration::from_secs(seconds))
            .ok()?;
        let left = end.duration_since(self.shared.settings.clock.now());
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => Some(Instant::now() + left),
            _ => {
                let message = "Pod was active on the node longer than the specified deadline";
                let failure = Failure::new(Reason::DeadlineExceeded, message);
                self.publish_warning(&failure);
                self.lifecycle = Lifecycle::Failed(failure);
                None
            }
        }
    }

    /// Renews the tokens in the volumes before they expire. Returns when to renew them next.
    pub(super) fn renew_tokens(&mut self) -> Option<Instant> {
        if self.intent() != Intent::Run || self.tasks.volumes.value()?.fresh_for.is_none() {
            return None;
        }
        let now = Instant::now();
        let renew_at = match self.tasks.tokens.stage(now) {
            Stage::Done => *self.tasks.tokens.value()?,
            Stage::Waiting => self.tasks.tokens.retry_at()?,
            Stage::Todo => now,
            Stage::Busy => return None,
        };
        if renew_at > now {
            return Some(renew_at);
        }
        self.tasks.tokens.begin();
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let dir = self.dir.clone();
        self.spawn(async { Outcome::TokensRenewed(act::refresh_tokens(shared, pod, dir).await) });
        None
    }
}
