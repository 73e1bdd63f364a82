//! Progress of the steps that concern the pod as a whole.

use tokio::time::Instant;

use super::super::{
    act::Prepared,
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
    /// Renewal of the tokens in the volumes; its value is when to renew them next.
    pub(super) tokens: Task<Instant>,
    pub(super) network: Task<Addresses>,
    pub(super) stop: Task<()>,
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
            tokens: Task::new(Backoff::LOCAL),
            network: Task::new(Backoff::LOCAL),
            stop: Task::new(Backoff::LOCAL),
            tear_down: Task::new(Backoff::LOCAL),
            delete_object: Task::new(Backoff::LOCAL),
        }
    }

    /// When failed tasks are retried; tokens have a timer of their own.
    pub(super) fn retry_times(&self) -> [Option<Instant>; 7] {
        [
            self.bind.retry_at(),
            self.sandbox.retry_at(),
            self.volumes.retry_at(),
            self.network.retry_at(),
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
    }
}
