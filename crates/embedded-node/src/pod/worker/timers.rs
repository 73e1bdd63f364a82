//! Checks beside the plan: the pod's admission, its deadline and its volumes.

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
use crate::{Failure, sysctls, volumes};

/// Interval of the comparison of volumes with their limits.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

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

    /// Fails a bound pod that this node does not accept. One that runs already keeps running.
    pub(super) fn reject_if_refused(&mut self) {
        let bound = self.bind_stage(Instant::now()) == Stage::Done;
        if !bound || !self.lifecycle.is_active() || self.intent() != Intent::Run {
            return;
        }
        if let Some(refusal) = self.refusal() {
            self.publish_warning(&refusal);
            let message = format!("Pod was rejected: {}", refusal.message);
            self.lifecycle = Lifecycle::Failed(Failure::new(refusal.reason, message));
        }
    }

    /// Why this node does not accept the pod.
    pub(super) fn refusal(&self) -> Option<Failure> {
        let is_new = self.supervisor.status.is_none();
        is_new.then(|| sysctls::refusal(&self.pod)).flatten()
    }

    /// Updates the contents of the volumes regularly. Returns when to do so next.
    pub(super) fn refresh_volumes(&mut self) -> Option<Instant> {
        self.tasks.volumes.value()?;
        if self.intent() != Intent::Run || !self.lifecycle.is_active() {
            return None;
        }
        let mut volumes = self.pod.spec.as_ref()?.volumes.iter().flatten();
        if !volumes.any(volumes::has_payload) {
            return None;
        }
        let now = Instant::now();
        let at = match self.tasks.refresh.stage(now) {
            Stage::Done => *self.tasks.refresh.value()?,
            Stage::Waiting => self.tasks.refresh.retry_at()?,
            Stage::Todo => now,
            Stage::Busy => return None,
        };
        if at > now {
            return Some(at);
        }
        self.tasks.refresh.begin();
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let (dir, tokens) = (self.dir.clone(), self.tasks.tokens.clone());
        self.spawn(async {
            let (tokens, result) = act::refresh_volumes(shared, pod, dir, tokens).await;
            Outcome::VolumesRefreshed(tokens, result)
        });
        None
    }

    /// Compares volumes with their limits regularly. Returns when to do so next.
    pub(super) fn measure_volumes(&mut self) -> Option<Instant> {
        self.tasks.volumes.value()?;
        let is_active = self.intent() == Intent::Run && self.lifecycle.is_active();
        if !is_active || !volumes::has_limit(&self.pod) {
            return None;
        }
        let now = Instant::now();
        let at = match self.tasks.measure.stage(now) {
            Stage::Done => *self.tasks.measure.value()?,
            Stage::Waiting => self.tasks.measure.retry_at()?,
            Stage::Todo => now,
            Stage::Busy => return None,
        };
        if at > now {
            return Some(at);
        }
        self.tasks.measure.begin();
        let (pod, dir) = (Arc::clone(&self.pod), self.dir.clone());
        self.spawn(async { Outcome::VolumesMeasured(act::measure_volumes(pod, dir).await) });
        None
    }

    /// Fails a pod with a volume above its limit.
    pub(super) fn on_volumes_measured(&mut self, result: Result<Option<String>, Failure>) {
        self.publish_error(&result, self.tasks.measure.failures());
        if let Ok(Some(message)) = &result
            && self.lifecycle.is_active()
            && self.intent() == Intent::Run
        {
            let failure = Failure::new(Reason::Evicted, message.clone());
            self.publish_warning(&failure);
            self.lifecycle = Lifecycle::Failed(failure);
        }
        let next = Instant::now() + MEASURE_EVERY;
        self.tasks.measure.finish(result.map(|_| next));
    }

    pub(super) fn on_volumes_refreshed(
        &mut self,
        tokens: act::LiveTokens,
        result: Result<(), Failure>,
    ) {
        self.publish_error(&result, self.tasks.refresh.failures());
        self.tasks.tokens = tokens;
        let next = self.next_refresh();
        self.tasks.refresh.finish(result.map(|()| next));
        if std::mem::take(&mut self.tasks.refresh_again) {
            self.tasks.refresh_soon();
        }
    }

    pub(super) fn next_refresh(&self) -> Instant {
        let regular = Instant::now() + self.shared.settings.volume_refresh;
        let renewal = self.tasks.tokens.renew_at();
        renewal.map_or(regular, |renewal| renewal.min(regular))
    }
}
