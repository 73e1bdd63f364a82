//! Starts and kills containers by requests to the pod's supervisor.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use image_store::Image;
use k8s_openapi::api::core::v1::{Container, Pod};
use pod_supervisor::{
    layout, model,
    protocol::Request,
    status::{PodStatus, State},
};
use reasons::Reason;
use rustix::process::Signal;

use super::KILL_FAILED;
use crate::{
    Addresses, Failure,
    container::{self, Kind},
    devices::{self, Allocation},
    documents::{self, Documents},
    environment::Facts,
    node::Shared,
    supervisor::{self, Link},
    volumes::Volumes,
};

const CREATE_FAILED: Reason = Reason::CreateContainerError;

/// The inputs of one container start.
#[derive(Debug)]
pub(crate) struct StartContainer {
    pub(crate) pod: Arc<Pod>,
    pub(crate) container: Container,
    pub(crate) kind: Kind,
    pub(crate) image: Image,
    pub(crate) volumes: Volumes,
    pub(crate) documents: Documents,
    pub(crate) addresses: Addresses,
    pub(crate) dir: PathBuf,
    /// How often the start has failed in a row.
    pub(crate) failures: u32,
}

pub(crate) async fn start(shared: Arc<Shared>, mut start: StartContainer) -> Result<(), Failure> {
    if start.failures > 0 {
        // A missing config map or secret may exist by now.
        let namespace = start.pod.metadata.namespace.clone().unwrap_or_default();
        let names = documents::names(&start.pod);
        start.documents = documents::fetch(&shared.settings.client, &namespace, names).await?;
    }
    let holder = devices::Holder {
        uid: start.pod.metadata.uid.as_deref().unwrap_or_default(),
        dir: &start.dir,
    };
    let allocation = shared.devices.allocate(holder, &start.container).await?;
    failpoints::after("embedded-node/pod/allocate-devices");
    let dir = start.dir.clone();
    let rendered = tokio::task::spawn_blocking(move || render(&shared, &start, &allocation))
        .await
        .map_err(|error| Failure::of(CREATE_FAILED, "render the container", &error))??;
    let request = Request::Start {
        container: Box::new(rendered),
    };
    supervisor::request(&dir, &request).await.map_err(|error| {
        Failure::of(
            CREATE_FAILED,
            "hand the container to the supervisor",
            &error,
        )
    })
}

/// Renders the container and records its image in the pod's directory.
fn render(
    shared: &Shared,
    start: &StartContainer,
    allocation: &Allocation,
) -> Result<model::ContainerSpec, Failure> {
    let spec = start.pod.spec.as_ref();
    let rendered = container::render(&container::Parts {
        facts: Facts {
            pod: &start.pod,
            documents: &start.documents,
            node_name: &shared.settings.node_name,
            host_ip: shared.settings.address,
            pod_ips: &start.addresses.ips,
        },
        container: &start.container,
        image: &start.image,
        volumes: &start.volumes,
        allocation,
        pod_dir: &start.dir,
        restart: spec.map_or(model::RestartPolicy::Never, |spec| {
            container::restart_policy(spec, &start.container, start.kind)
        }),
    })?;
    let record = start.dir.join(layout::container_dir(&start.container.name));
    fs::create_dir_all(&record)
        .and_then(|()| fs::write(record.join("image"), start.image.digest.as_str()))
        .map_err(|error| Failure::of(CREATE_FAILED, "write the container's files", &error))?;
    failpoints::after("embedded-node/pod/write-container");
    Ok(rendered)
}

/// The digest of the image that a container was started from.
pub(crate) fn image_record(dir: &Path, container: &str) -> Option<String> {
    fs::read_to_string(dir.join(layout::container_dir(container)).join("image")).ok()
}

/// One run of a container to end.
#[derive(Debug)]
pub(crate) struct KillContainer {
    pub(crate) dir: PathBuf,
    pub(crate) container: String,
    pub(crate) attempt: u32,
    pub(crate) grace: Duration,
}

/// Ends one run of a container with SIGTERM, after the grace period with SIGKILL. Its supervisor
/// then applies the restart policy.
pub(crate) async fn kill_container(kill: KillContainer) -> Result<(), Failure> {
    let KillContainer {
        dir,
        container,
        attempt,
        grace,
    } = kill;
    let failed = |error: io::Error| Failure::of(KILL_FAILED, "end an unhealthy container", &error);
    let runs = |status: &PodStatus| {
        status.containers.iter().any(|one| {
            let running = matches!(one.state, State::Running { .. });
            one.name == container && one.attempt == attempt && running
        })
    };
    let (mut link, status) = Link::open(&dir).await.map_err(failed)?;
    if !runs(&status) {
        return Ok(());
    }
    let ended = async {
        while let Ok(status) = link.next().await {
            if !runs(&status) {
                return;
            }
        }
    };
    signal(&dir, &container, Signal::TERM)
        .await
        .map_err(failed)?;
    if tokio::time::timeout(grace, ended).await.is_err() {
        signal(&dir, &container, Signal::KILL)
            .await
            .map_err(failed)?;
    }
    Ok(())
}

async fn signal(dir: &Path, container: &str, signal: Signal) -> io::Result<()> {
    let request = Request::Signal {
        container: container.to_owned(),
        signal: signal.as_raw(),
    };
    supervisor::request(dir, &request).await
}
