//! Starts the planned steps.

use std::sync::Arc;

use futures::future::BoxFuture;
use reasons::Reason;

use super::{
    super::{
        act,
        plan::{Remains, Role, Run, Step},
        status,
    },
    Outcome, Worker,
};
use crate::{Failure, container::Kind, schedule::Obstacle};

/// Reason of a pod that waits for its volumes; never shown to users.
const WAITING_FOR_VOLUMES: Reason = Reason::WaitingForVolumes;

impl Worker {
    pub(super) fn start_step(&mut self, step: Step) {
        let work = match step {
            Step::Bind => self.bind(),
            // A refused pod gets none: it fails as soon as it is bound.
            Step::MakeSandbox if self.refusal().is_some() => None,
            Step::MakeSandbox => Some(self.make_sandbox()),
            Step::PrepareVolumes => Some(self.prepare_volumes()),
            Step::JoinNetwork => self.join_network(),
            Step::UpdateNetworks => self.update_networks(),
            Step::Pull(index) => self.pull(index),
            Step::Start(index) => self.start_container(index),
            Step::Stop => Some(self.stop()),
            Step::TearDown(goal) => Some(self.tear_down(goal)),
            Step::DeleteObject => Some(self.delete_object()),
        };
        let Some(work) = work else { return };
        self.spawn(async move {
            let outcome = work.await;
            // Before the worker learns of the outcome.
            failpoints::after(failpoint(step));
            outcome
        });
    }

    fn bind(&mut self) -> Option<BoxFuture<'static, Outcome>> {
        match self.shared.obstacle(&self.pod) {
            None => {}
            Some(Obstacle::Unschedulable(message)) => {
                self.finish_bind(Err(Failure::new(Reason::FailedScheduling, message)));
                return None;
            }
            // Takes moments: not worth an event.
            Some(Obstacle::Volumes) => {
                let message = "the pod's volumes are being made";
                let failure = Failure::new(WAITING_FOR_VOLUMES, message);
                self.tasks.bind.finish(Err(failure));
                return None;
            }
        }
        self.tasks.bind.begin();
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        Some(Box::pin(async {
            Outcome::Bound(act::bind(shared, pod).await)
        }))
    }

    fn make_sandbox(&mut self) -> BoxFuture<'static, Outcome> {
        self.tasks.sandbox.begin();
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let dir = self.dir.clone();
        Box::pin(async { Outcome::Sandbox(act::make_sandbox(shared, pod, dir).await) })
    }

    fn prepare_volumes(&mut self) -> BoxFuture<'static, Outcome> {
        self.tasks.volumes.begin();
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let dir = self.dir.clone();
        Box::pin(async { Outcome::Volumes(act::prepare_volumes(shared, pod, dir).await) })
    }

    fn join_network(&mut self) -> Option<BoxFuture<'static, Outcome>> {
        let request = self.network_request()?;
        self.tasks.network.begin();
        let shared = Arc::clone(&self.shared);
        Some(Box::pin(async {
            Outcome::Network(act::join_network(shared, request).await)
        }))
    }

    fn update_networks(&mut self) -> Option<BoxFuture<'static, Outcome>> {
        let request = self.network_request()?;
        self.tasks.networks.begin();
        let shared = Arc::clone(&self.shared);
        Some(Box::pin(async {
            Outcome::Networks(act::update_networks(shared, request).await)
        }))
    }

    fn network_request(&self) -> Option<act::JoinNetwork> {
        Some(act::JoinNetwork {
            pod: Arc::clone(&self.pod),
            uid: self.uid.clone(),
            dir: self.dir.clone(),
            supervisor: self.supervisor.status.clone()?,
        })
    }

    fn pull(&mut self, index: usize) -> Option<BoxFuture<'static, Outcome>> {
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let tasks = self.containers.get_mut(index)?;
        tasks.image.begin();
        let container = tasks.container.clone();
        Some(Box::pin(async move {
            Outcome::Pulled(index, act::pull(shared, pod, container).await)
        }))
    }

    fn start_container(&mut self, index: usize) -> Option<BoxFuture<'static, Outcome>> {
        let prepared = self.tasks.volumes.value().cloned()?;
        let addresses = self.tasks.network.value().cloned()?;
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let tasks = self.containers.get_mut(index)?;
        let image = tasks.image.value().cloned()?;
        tasks.digest = Some(image.digest.as_str().to_owned());
        tasks.start.begin();
        let start = act::StartContainer {
            pod,
            container: tasks.container.clone(),
            kind: match tasks.role {
                Role::Init | Role::Sidecar => Kind::Init,
                Role::Main => Kind::Main,
            },
            image,
            volumes: prepared.volumes,
            documents: prepared.documents,
            addresses,
            dir: self.dir.clone(),
            failures: tasks.start.failures(),
        };
        Some(Box::pin(async move {
            Outcome::Started(index, act::start(shared, start).await)
        }))
    }

    fn stop(&mut self) -> BoxFuture<'static, Outcome> {
        self.tasks.stop.begin();
        self.publish_stopping();
        let (shared, request) = (Arc::clone(&self.shared), self.stop_request());
        let superseded = self.tasks.superseded.clone();
        Box::pin(async move {
            let stopped = superseded.run_until_cancelled(act::stop(shared, request));
            Outcome::Stopped(stopped.await.unwrap_or(Ok(())))
        })
    }

    fn publish_stopping(&self) {
        for one in &self.containers {
            if status::run(self.container_status(one)) == Run::Running {
                let note = format!("Stopping container {}", one.container.name);
                self.publish_normal(Reason::Killing, note);
            }
        }
    }

    fn tear_down(&mut self, goal: Remains) -> BoxFuture<'static, Outcome> {
        self.tasks.tear_down.begin();
        let (shared, uid) = (Arc::clone(&self.shared), self.uid.clone());
        let dir = self.dir.clone();
        Box::pin(async move { Outcome::TornDown(act::tear_down(shared, uid, dir, goal).await) })
    }

    fn delete_object(&mut self) -> BoxFuture<'static, Outcome> {
        self.tasks.delete_object.begin();
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        Box::pin(async { Outcome::ObjectDeleted(act::delete_object(shared, pod).await) })
    }
}

fn failpoint(step: Step) -> &'static str {
    match step {
        Step::Bind => "embedded-node/pod/bind",
        Step::MakeSandbox => "embedded-node/pod/make-sandbox",
        Step::PrepareVolumes => "embedded-node/pod/prepare-volumes",
        Step::JoinNetwork => "embedded-node/pod/join-network",
        Step::UpdateNetworks => "embedded-node/pod/update-networks",
        Step::Pull(_) => "embedded-node/pod/pull",
        Step::Start(_) => "embedded-node/pod/start",
        Step::Stop => "embedded-node/pod/stop",
        Step::TearDown(Remains::Everything | Remains::Files) => {
            "embedded-node/pod/tear-down-all-but-files"
        }
        Step::TearDown(Remains::Nothing) => "embedded-node/pod/tear-down",
        Step::DeleteObject => "embedded-node/pod/delete-object",
    }
}
