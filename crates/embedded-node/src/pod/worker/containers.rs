//! Progress of the steps of each container.

use image_store::Image;
use k8s_openapi::api::core::v1::{Container, Pod};
use pod_supervisor::status::{ContainerStatus, State};
use tokio::time::Instant;

use super::{
    super::{
        plan::{ObservedContainer, Role, Run},
        status,
        task::{Backoff, Task},
    },
    Worker,
    hooks::running_attempt,
};
use crate::{
    hooks::StartHook,
    probes::{self, Health},
};

#[derive(Debug)]
pub(super) struct ContainerTasks {
    pub(super) role: Role,
    pub(super) container: Container,
    pub(super) image: Task<Image>,
    /// Handing the container to the supervisor.
    pub(super) start: Task<()>,
    /// Digest of the image it was started from.
    pub(super) digest: Option<String>,
    pub(super) start_hook: StartHook,
    /// In place of the status of a run whose start hook has not succeeded.
    starting: Option<ContainerStatus>,
    pub(super) probes: Vec<Health>,
    /// The run that is being ended because a probe failed.
    pub(super) killing: Option<u32>,
}

impl ContainerTasks {
    /// Init containers and sidecars first, in their order.
    pub(super) fn of_pod(pod: &Pod) -> Vec<Self> {
        let Some(spec) = &pod.spec else {
            return Vec::new();
        };
        let init = spec.init_containers.iter().flatten().map(|container| {
            let sidecar = container.restart_policy.as_deref() == Some("Always");
            let role = if sidecar { Role::Sidecar } else { Role::Init };
            Self::new(role, container)
        });
        let main = spec.containers.iter();
        init.chain(main.map(|container| Self::new(Role::Main, container)))
            .collect()
    }

    fn new(role: Role, container: &Container) -> Self {
        Self {
            role,
            container: container.clone(),
            image: Task::new(Backoff::PULL),
            start: Task::new(Backoff::LOCAL),
            digest: None,
            start_hook: StartHook::of(container),
            starting: None,
            probes: probes::of(container),
            killing: None,
        }
    }
}

impl Worker {
    pub(super) fn observe_containers(&self, now: Instant) -> Vec<ObservedContainer> {
        let observe = |one: &ContainerTasks| {
            let run = status::run(self.container_status(one));
            ObservedContainer {
                role: one.role,
                image: one.image.stage(now),
                start: one.start.stage(now),
                run,
                started: run == Run::Running && probes::has_started(&one.probes),
            }
        };
        self.containers.iter().map(observe).collect()
    }

    /// The container's status. One that waits for its start hook is still starting.
    pub(super) fn container_status<'a>(
        &'a self,
        of: &'a ContainerTasks,
    ) -> Option<&'a ContainerStatus> {
        let known = self.supervisor.container(&of.container.name)?;
        let starting = of.starting.as_ref();
        let pending = running_attempt(known).is_some_and(|run| of.start_hook.is_pending(run));
        starting.filter(|_| pending).or(Some(known))
    }

    /// Takes over the supervisor's statuses.
    pub(super) fn sync_containers(&mut self) {
        for one in &mut self.containers {
            let known = self.supervisor.container(&one.container.name);
            one.starting = known.map(|known| ContainerStatus {
                state: State::Starting,
                ..known.clone()
            });
        }
    }
}
