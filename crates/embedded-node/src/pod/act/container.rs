//! Starts containers by requests to the pod's supervisor.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use image_store::Image;
use k8s_openapi::api::core::v1::{Container, Pod};
use pod_supervisor::{layout, model, protocol::Request};
use reasons::Reason;

use crate::{
    Addresses, Failure,
    container::{self, Kind},
    cpus,
    devices::{self, Allocation},
    documents::{self, Documents},
    environment::Facts,
    node::Shared,
    supervisor,
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
    let services = shared.services.variables(&start.pod).await;
    failpoints::after("embedded-node/pod/allocate-devices");
    let dir = start.dir.clone();
    let rendered = tokio::task::spawn_blocking(move || {
        panics::catch(|| {
            let cpus = cpus(&shared, &start)?;
            let surroundings = Surroundings {
                allocation: &allocation,
                services: &services,
                cpus: cpus.as_deref(),
            };
            render(&shared, &start, surroundings)
        })
    })
    .await
    .map_err(|error| Failure::of(CREATE_FAILED, "render the container", &error))?
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

/// What a container gets besides its own fields.
#[derive(Debug, Clone, Copy)]
struct Surroundings<'a> {
    allocation: &'a Allocation,
    /// The environment variables of services.
    services: &'a BTreeMap<String, String>,
    cpus: Option<&'a str>,
}

/// The CPUs of the container, which all others have left.
fn cpus(shared: &Shared, start: &StartContainer) -> Result<Option<String>, Failure> {
    let own = shared.cpus.of_container(&start.pod, &start.container)?;
    if own.is_some() {
        cpus::keep_apart(shared).map_err(|error| {
            Failure::of(CREATE_FAILED, "move other containers to other CPUs", &error)
        })?;
    }
    failpoints::after("embedded-node/pod/allocate-cpus");
    Ok(own)
}

/// Renders the container and records its image in the pod's directory.
fn render(
    shared: &Shared,
    start: &StartContainer,
    surroundings: Surroundings<'_>,
) -> Result<model::ContainerSpec, Failure> {
    let spec = start.pod.spec.as_ref();
    let rendered = container::render(&container::Parts {
        facts: Facts {
            pod: &start.pod,
            documents: &start.documents,
            node_name: &shared.settings.node_name,
            host_ip: shared.settings.address,
            pod_ips: &start.addresses.ips,
            allocatable: &shared.allocatable(),
            services: surroundings.services,
        },
        container: &start.container,
        image: &start.image,
        volumes: &start.volumes,
        allocation: surroundings.allocation,
        cpus: surroundings.cpus,
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
