//! Progress of the steps that concern the pod as a whole.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::{
    act::{LiveTokens, Prepared},
    plan::Stage,
    task::{Backoff, Task},
};
use crate::Addresses;

#[derive(Debug)]
pub(super) struct Tasks {
    pub(super) bind: Task<()>,
    /// The scheduling failure that was last published.
    pub(super) unschedulable: Option<String>,
    pub(super) sandbox: Task<()>,
    pub(super) volumes: Task<Prepared>,
    /// Update of the contents of the volumes; its value is when to update them next.
    pub(super) refresh: Task<Instant>,
    /// The pod has changed since the update in progress began.
    pub(super) refresh_again: bool,
    /// Comparison of volumes with their limits; its value is when to compare them next.
    pub(super) measure: Task<Instant>,
    pub(super) tokens: LiveTokens,
    pub(super) network: Task<Addresses>,
    /// Comparison of the networks of the running pod with those that it names.
    pub(super) networks: Task<()>,
    /// The pod has changed since the comparison in progress began.
    pub(super) compare_again: bool,
    pub(super) stop: Task<()>,
    /// Cancelled when a stop in progress has to begin again, with a shorter grace period.
    pub(super) superseded: CancellationToken,
    pub(super) tear_down: Task<()>,
    pub(super) delete_object: Task<()>,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self {
            bind: Task::new(Backoff::LOCAL),
            unschedulable: None,
            sandbox: Task::new(Backoff::LOCAL),
            volumes: Task::new(Backoff::LOCAL),
            refresh: Task::new(Backoff::LOCAL),
            refresh_again: false,
            measure: Task::new(Backoff::LOCAL),
            tokens: LiveTokens::default(),
            network: Task::new(Backoff::NETWORK),
            networks: Task::new(Backoff::NETWORK),
            compare_again: false,
            stop: Task::new(Backoff::LOCAL),
            superseded: CancellationToken::new(),
            tear_down: Task::new(Backoff::LOCAL),
            delete_object: Task::new(Backoff::LOCAL),
        }
    }

    /// When failed tasks are retried; the update of volumes has a timer of its own.
    pub(super) fn retry_times(&self) -> [Option<Instant>; 8] {
        [
            self.bind.retry_at(),
            self.sandbox.retry_at(),
            self.volumes.retry_at(),
            self.network.retry_at(),
            self.networks.retry_at(),
            self.stop.retry_at(),
            self.tear_down.retry_at(),
            self.delete_object.retry_at(),
        ]
    }

    /// The pod is to end, or sooner than before: a stop or teardown that failed or was partial
    /// starts again at once.
    pub(super) fn restart_termination(&mut self) {
        for task in [&mut self.stop, &mut self.tear_down] {
            if task.stage(Instant::now()) != Stage::Busy {
                task.reset();
            }
        }
        if self.stop.stage(Instant::now()) == Stage::Busy {
            self.superseded.cancel();
        }
    }

    /// The contents of the volumes may have changed.
    pub(super) fn refresh_soon(&mut self) {
        match self.refresh.stage(Instant::now()) {
            Stage::Busy => self.refresh_again = true,
            Stage::Done => self.refresh = Task::done(Instant::now()),
            Stage::Todo | Stage::Waiting => {}
        }
    }

    /// The pod may name other networks.
    pub(super) fn compare_networks_soon(&mut self) {
        if self.networks.stage(Instant::now()) == Stage::Busy {
            self.compare_again = true;
        } else {
            self.networks.reset();
        }
    }

    /// A superseded stop has ended: the next one may begin.
    pub(super) fn begin_next_stop(&mut self) {
        if self.superseded.is_cancelled() {
            self.superseded = CancellationToken::new();
            self.stop.reset();
        }
    }
}
