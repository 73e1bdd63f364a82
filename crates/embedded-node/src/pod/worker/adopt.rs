//! Starts a worker from what an earlier node process left on disk, without touching it.

use std::sync::Arc;

use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use pod_supervisor::status as disk;
use reasons::Reason;
use tokio::sync::watch;

use super::{
    super::{act, plan::Remains, task::Task},
    ContainerTasks, Desired, Lifecycle, Report, Supervisor, Tasks, Worker,
};
use crate::{Failure, node::Shared, supervisor::Link};

impl Worker {
    pub(super) async fn adopt(
        shared: Arc<Shared>,
        pod: Arc<Pod>,
        desired: watch::Receiver<Desired>,
    ) -> Self {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let deleted = matches!(&*desired.borrow(), Desired::Deleted);
        let mut worker = Self {
            dir: shared.pod_dir(&uid),
            containers: ContainerTasks::of_pod(&pod),
            report: Report::new(&pod, shared.settings.clock.now()),
            lifecycle: Lifecycle::Active,
            tasks: Tasks::new(),
            remains: Remains::Everything,
            supervisor: Supervisor::unknown(),
            in_flight: FuturesUnordered::new(),
            shared,
            uid,
            pod,
            desired,
            deleted,
        };
        worker.adopt_files().await;
        worker.sync_containers();
        worker.sync_start_hooks();
        worker.sync_probes();
        worker
    }

    async fn adopt_files(&mut self) {
        if !self.dir.exists() {
            let status = self.pod.status.as_ref();
            match status.and_then(|status| status.phase.as_deref()) {
                Some("Succeeded" | "Failed") => self.lifecycle = Lifecycle::AlreadyFinished,
                Some("Running") => self.on_host_reboot(),
                _ => {}
            }
            return;
        }
        if let Ok((link, status)) = Link::open(&self.dir).await {
            self.supervisor.link = Some(link);
            self.supervisor.status = Some(status);
            self.tasks.sandbox = Task::done(());
        } else {
            match disk::read(&self.dir) {
                Ok(status) => self.supervisor.status = status,
                Err(error) => tracing::warn!(%error, "pod status on disk is unreadable"),
            }
        }
        for one in &mut self.containers {
            one.digest = act::image_record(&self.dir, &one.container.name);
        }
        let started = self.containers.iter().any(|one| one.digest.is_some());
        if started && self.supervisor.status.is_none() {
            self.on_host_reboot();
        }
        if let Some(record) = act::network_record(&self.dir)
            && let Some(status) = &self.supervisor.status
            && record.namespace == status.network_namespace
        {
            self.tasks.network = Task::done(record.addresses);
        }
    }

    /// The host was restarted and all processes are gone; the restart policy decides whether the
    /// pod runs again.
    fn on_host_reboot(&mut self) {
        let spec = self.pod.spec.as_ref();
        let policy = spec.and_then(|spec| spec.restart_policy.as_deref());
        if policy == Some("Never") {
            let message = "the host was restarted while the pod ran";
            self.lifecycle = Lifecycle::Failed(Failure::new(Reason::NodeRestarted, message));
            return;
        }
        for one in &mut self.containers {
            one.digest = None;
        }
        let records = self.dir.join("containers");
        if records.exists()
            && let Err(error) = std::fs::remove_dir_all(records)
        {
            tracing::warn!(%error, "outdated container records cannot be removed");
        }
    }
}
