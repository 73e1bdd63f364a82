//! The task of one pod: waits for changes, observes, plans and starts the planned steps.
//!
//! - [`adopt`] takes over the files and processes of an earlier node process.
//! - [`tasks`] and [`containers`] hold the progress of each step.
//! - [`steps`] starts the planned steps, [`outcome`] records their results.
//! - [`supervisor`] follows the pod's supervisor, [`hooks`] and [`probes`] those of its containers,
//!   [`timers`] the deadline and the volumes of the pod.
//! - [`report`] keeps the status on the API server up to date, [`events`] publishes events.

mod adopt;
mod containers;
mod events;
mod hooks;
mod outcome;
mod probes;
mod report;
mod steps;
mod supervisor;
mod tasks;
mod timers;

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::Pod;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::plan::{Intent, Observed, Remains, Stage, plan};
use crate::{Failure, node::Shared, schedule};

use containers::ContainerTasks;
use outcome::Outcome;
use report::Report;
use supervisor::Supervisor;
use tasks::Tasks;

/// The pod on the API server.
#[derive(Debug, Clone)]
pub(crate) enum Desired {
    Pod(Arc<Pod>),
    Deleted,
}

/// Drives the pod until nothing of it is left on this host. `stop` ends only the task: the pod
/// keeps running.
pub(crate) async fn run(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    desired: watch::Receiver<Desired>,
    stop: CancellationToken,
) {
    let span = tracing::info_span!(
        "pod",
        namespace = pod.metadata.namespace,
        object = pod.metadata.name,
        uid = pod.metadata.uid,
    );
    let work = async { Worker::adopt(shared, pod, desired).await.run(stop).await };
    work.instrument(span).await;
}

struct Worker {
    shared: Arc<Shared>,
    uid: String,
    dir: PathBuf,
    pod: Arc<Pod>,
    desired: watch::Receiver<Desired>,
    /// The object does not exist any more.
    deleted: bool,
    lifecycle: Lifecycle,
    tasks: Tasks,
    containers: Vec<ContainerTasks>,
    remains: Remains,
    supervisor: Supervisor,
    report: Report,
    in_flight: FuturesUnordered<BoxFuture<'static, Outcome>>,
}

/// Whether the pod may still run containers, apart from what its containers' states say.
#[derive(Debug)]
enum Lifecycle {
    Active,
    /// No retry can fix this.
    Failed(Failure),
    /// The pod finished before this task began, and nothing of it is on this host.
    AlreadyFinished,
}

impl Lifecycle {
    fn is_active(&self) -> bool {
        matches!(self, Self::Active)
    }

    fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Active | Self::AlreadyFinished => None,
        }
    }
}

impl Worker {
    async fn run(mut self, stop: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        let mut node_changed = shared.node_changed.subscribe();
        loop {
            let wake_at = self.reconcile();
            if self.is_finished() {
                return;
            }
            let deadline = wake_at.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.desired.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.on_desired();
                }
                Some(outcome) = self.in_flight.next() => self.on_outcome(outcome),
                status = self.supervisor.next_status() => self.on_status(status),
                _ = node_changed.changed(), if self.tasks.bind.failure().is_some() => {
                    self.tasks.bind.reset();
                }
                () = tokio::time::sleep_until(deadline), if wake_at.is_some() => {}
            }
        }
    }

    fn is_finished(&self) -> bool {
        let object_deleted = self.deleted || self.tasks.delete_object.value().is_some();
        self.remains == Remains::Nothing && object_deleted && self.in_flight.is_empty()
    }

    /// Starts all pending work. Returns when to reconcile again if nothing happens until then.
    fn reconcile(&mut self) -> Option<Instant> {
        self.reject_if_refused();
        let timers = [
            self.report_if_changed(),
            self.enforce_deadline(),
            self.start_probes(),
            self.refresh_volumes(),
            self.measure_volumes(),
        ];
        for step in plan(&self.observe()) {
            self.start_step(step);
        }
        let retries = self
            .tasks
            .retry_times()
            .into_iter()
            .chain([self.report.retry_at()]);
        let containers = self
            .containers
            .iter()
            .flat_map(|one| [one.image.retry_at(), one.start.retry_at()]);
        let now = Instant::now();
        // A retry that was possible and not taken waits for another change.
        timers
            .into_iter()
            .chain(retries)
            .chain(containers)
            .flatten()
            .filter(|at| *at > now)
            .min()
    }

    fn observe(&self) -> Observed {
        let now = Instant::now();
        Observed {
            intent: self.intent(),
            bind: self.bind_stage(now),
            sandbox: self.tasks.sandbox.stage(now),
            volumes: self.tasks.volumes.stage(now),
            refresh: self.tasks.refresh.stage(now),
            network: self.tasks.network.stage(now),
            networks: self.tasks.networks.stage(now),
            containers: self.observe_containers(now),
            over: !self.lifecycle.is_active(),
            stop: self.tasks.stop.stage(now),
            tear_down: self.tasks.tear_down.stage(now),
            remains: self.remains,
            reported: self.is_reported(),
            delete_object: self.tasks.delete_object.stage(now),
        }
    }

    fn intent(&self) -> Intent {
        if self.deleted {
            Intent::Remove
        } else if self.pod.metadata.deletion_timestamp.is_some() {
            Intent::Terminate
        } else {
            Intent::Run
        }
    }

    fn bind_stage(&self, now: Instant) -> Stage {
        if schedule::is_ours_to_bind(&self.pod) {
            self.tasks.bind.stage(now)
        } else {
            Stage::Done
        }
    }

    fn on_desired(&mut self) {
        let desired = self.desired.borrow_and_update().clone();
        match desired {
            Desired::Pod(pod) => {
                let (before, after) = (&self.pod.metadata, &pod.metadata);
                let began =
                    after.deletion_timestamp.is_some() && before.deletion_timestamp.is_none();
                let shorter =
                    after.deletion_grace_period_seconds < before.deletion_grace_period_seconds;
                if before.labels != after.labels || before.annotations != after.annotations {
                    self.tasks.refresh_soon();
                }
                if before.annotations != after.annotations {
                    self.tasks.compare_networks_soon();
                }
                self.pod = pod;
                if began || shorter {
                    self.tasks.restart_termination();
                }
            }
            Desired::Deleted => {
                self.deleted = true;
                self.tasks.restart_termination();
            }
        }
    }

    /// Runs `work` beside the loop, which receives its outcome.
    fn spawn(&self, work: impl Future<Output = Outcome> + Send + 'static) {
        self.in_flight.push(Box::pin(work));
    }

    /// How long containers may take to end after SIGTERM.
    fn grace(&self) -> Duration {
        let seconds = if self.intent() == Intent::Terminate {
            self.pod.metadata.deletion_grace_period_seconds
        } else {
            self.termination_grace_period()
        };
        grace_period(seconds)
    }

    fn termination_grace_period(&self) -> Option<i64> {
        self.pod.spec.as_ref()?.termination_grace_period_seconds
    }
}

/// Kubernetes' default is 30 s.
fn grace_period(seconds: Option<i64>) -> Duration {
    Duration::from_secs(u64::try_from(seconds.unwrap_or(30)).unwrap_or(0))
}
