//! Progress of the steps of each container.

use image_store::Image;
use k8s_openapi::api::core::v1::{Container, Pod};
use pod_supervisor::status::ContainerStatus;
use tokio::time::Instant;

use super::{
    super::{
        plan::{ObservedContainer, Role, Run},
        status,
        task::{Backoff, Task},
    },
    Worker,
};
use crate::probes::{self, Health};

#[derive(Debug)]
pub(super) struct ContainerTasks {
    pub(super) role: Role,
    pub(super) container: Container,
    pub(super) image: Task<Image>,
    /// Handing the container to the supervisor.
    pub(super) start: Task<()>,
    /// Digest of the image it was started from.
    pub(super) digest: Option<String>,
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

    pub(super) fn container_status(&self, of: &ContainerTasks) -> Option<&ContainerStatus> {
        self.supervisor.container(&of.container.name)
    }
}
