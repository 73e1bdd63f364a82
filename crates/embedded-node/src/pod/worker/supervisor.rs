//! The pod's supervisor as the worker knows it: connection and latest status.

use std::{io, time::Duration};

use pod_supervisor::status::{self as disk, ContainerStatus, EndReason, PodStatus, State};
use reasons::Reason;
use tokio::time::Instant;

use super::{super::plan::Stage, Worker};
use crate::{Failure, metrics, supervisor::Link};

/// A supervisor that dies sooner is not started again at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) link: Option<Link>,
    connected_at: Instant,
    pub(super) status: Option<PodStatus>,
}

impl Supervisor {
    /// Neither a connection nor a status is known yet.
    pub(super) fn unknown() -> Self {
        Self {
            link: None,
            connected_at: Instant::now(),
            status: None,
        }
    }

    pub(super) fn connect(&mut self, link: Link) {
        self.connected_at = Instant::now();
        self.link = Some(link);
    }

    /// The next status; waits forever without a connection.
    pub(super) async fn next_status(&mut self) -> io::Result<PodStatus> {
        match &mut self.link {
            Some(link) => link.next().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn container(&self, name: &str) -> Option<&ContainerStatus> {
        let all = &self.status.as_ref()?.containers;
        all.iter().find(|one| one.name == name)
    }
}

impl Worker {
    /// A new status of the supervisor, or the end of the connection to it.
    pub(super) fn on_status(&mut self, status: io::Result<PodStatus>) {
        let Ok(status) = status else {
            return self.on_supervisor_end();
        };
        let before = self.supervisor.status.replace(status);
        self.publish_changes(before.as_ref());
        self.sync_containers();
        self.sync_start_hooks();
        self.sync_probes();
        let namespace = |status: &PodStatus| status.network_namespace;
        let after = self.supervisor.status.as_ref().map(namespace);
        if before.is_some_and(|before| Some(namespace(&before)) != after) {
            self.tasks.network.reset();
        }
    }

    fn on_supervisor_end(&mut self) {
        self.supervisor.link = None;
        let stopping = self.tasks.stop.stage(Instant::now()) != Stage::Todo;
        if !stopping && self.supervisor.connected_at.elapsed() < SHORT_LIFE {
            let message = "the pod's supervisor ended right after its start";
            let failure = Failure::new(Reason::FailedCreatePodSandBox, message);
            self.publish_failure(&failure, self.tasks.sandbox.failures());
            self.tasks.sandbox.finish(Err(failure));
        } else {
            self.tasks.sandbox.reset();
        }
        // A supervisor writes each status to disk before it sends it.
        match disk::read(&self.dir) {
            Ok(Some(status)) => self.supervisor.status = Some(status),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "pod status on disk is unreadable"),
        }
    }

    fn publish_changes(&self, before: Option<&PodStatus>) {
        let all = self.supervisor.status.iter();
        for now in all.flat_map(|status| &status.containers) {
            let old = before.and_then(|old| old.containers.iter().find(|one| one.name == now.name));
            if old.is_none_or(|old| old.state != now.state) {
                self.publish_change(now);
            }
        }
    }

    fn publish_change(&self, now: &ContainerStatus) {
        match &now.state {
            State::Running { .. } => {
                let kind = if now.attempt == 0 { "first" } else { "restart" };
                metrics::CONTAINER_STARTS.increment([kind]);
                self.publish_normal(Reason::Created, format!("Created container: {}", now.name));
                self.publish_normal(Reason::Started, format!("Started container {}", now.name));
            }
            State::BackOff { delay_ms, .. } if *delay_ms > 0 => {
                let note = format!("Back-off restarting failed container {}", now.name);
                self.publish_back_off(note);
            }
            State::Starting | State::BackOff { .. } | State::Ended { .. } => {}
        }
        if let Some(end) = now.termination()
            && end.reason == EndReason::StartError
        {
            let message = format!("Error: container {}: {}", now.name, end.message);
            self.publish_warning(&Failure::new(Reason::Failed, message));
        }
    }
}
