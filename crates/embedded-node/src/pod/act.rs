//! What the steps of a plan do. Each may be cut off at any await and done again.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::try_join_all;
use image_store::{Credentials, Image, PullPolicy};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Api;
use pod_supervisor::{
    cgroup, layout,
    model::{NetworkMode, Sandbox},
    protocol::Request,
    status::{PodStatus, State},
};
use reasons::Reason;
use reconcile::{EventType, Key};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::plan::Left;
use crate::{
    Addresses, Failure, container,
    documents::{self, Documents},
    environment::Facts,
    node::Shared,
    resolv_conf, storage,
    supervisor::{self, Link},
    teardown, tokens,
    volumes::{self, Volumes},
};

/// Who writes pod statuses.
const MANAGER: &str = "embedded-node";
const SANDBOX: Reason = Reason::FailedCreatePodSandBox;
/// A pull that takes longer is worth telling.
const NOTICEABLE: Duration = Duration::from_millis(200);

/// The pod object as last seen, for a node that starts while the API server does not know the pod.
pub(crate) const OBJECT_FILE: &str = "object.json";
/// The addresses of the pod and the namespace they are in.
pub(crate) const NETWORK_FILE: &str = "network.json";

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkRecord {
    pub(crate) namespace: u64,
    pub(crate) addresses: Addresses,
}

pub(crate) async fn bind(shared: Arc<Shared>, pod: Arc<Pod>) -> Result<(), Failure> {
    let Key { namespace, name } = Key::of(pod.as_ref());
    let node = &shared.settings.node_name;
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let request = http::Request::post(format!(
        "/api/v1/namespaces/{namespace}/pods/{name}/binding"
    ))
    .header(http::header::CONTENT_TYPE, "application/json")
    .body(body.to_string().into_bytes())
    .map_err(|error| Failure::of(Reason::FailedScheduling, "bind the pod", &error))?;
    match shared.settings.client.request_text(request).await {
        Ok(_) => Ok(()),
        // Bound meanwhile, by us before a restart or by somebody else: the watch tells.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Failure::of(
            Reason::FailedScheduling,
            "bind the pod",
            &error,
        )),
    }
}

/// Writes what the supervisor needs and makes sure that there is one.
pub(crate) async fn make_sandbox(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    dir: PathBuf,
) -> Result<(Link, PodStatus), Failure> {
    let task = (Arc::clone(&shared), dir.clone());
    blocking(
        SANDBOX,
        "write the pod's files: is the disk full?",
        move || write_sandbox(&task.0, &pod, &task.1),
    )
    .await?;
    failpoints::after("embedded-node/pod/write-sandbox");
    supervisor::ensure(&shared.settings.supervisor, dir, &shared.children).await
}

fn write_sandbox(shared: &Shared, pod: &Pod, dir: &Path) -> io::Result<()> {
    let etc = dir.join("etc");
    fs::create_dir_all(&etc)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    replace(&dir.join(OBJECT_FILE), &serde_json::to_vec(pod)?)?;
    if dir.join(layout::SANDBOX_FILE).exists() {
        return Ok(());
    }
    let spec = pod.spec.as_ref();
    let host_network = spec.is_some_and(|spec| spec.host_network == Some(true));
    let facts = Facts {
        pod,
        documents: &Documents::default(),
        node_name: &shared.settings.node_name,
        host_ip: shared.settings.address,
        pod_ips: &[],
    };
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let hostname = container::hostname(&facts);
    fs::write(etc.join("hostname"), format!("{hostname}\n"))?;
    let resolver = resolv_conf::render(pod, shared.services.dns(), &shared.settings.resolver);
    fs::write(etc.join("resolv.conf"), resolver)?;
    fs::write(etc.join("hosts"), hosts(&hostname, None))?;
    let security = spec.and_then(|spec| spec.security_context.as_ref());
    let sysctls = security
        .into_iter()
        .flat_map(|security| security.sysctls.iter().flatten());
    let grace = spec
        .and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or(30);
    let sandbox = Sandbox {
        cgroup: shared.cgroup(&uid),
        uid,
        hostname,
        network: if host_network {
            NetworkMode::Host
        } else {
            NetworkMode::Pod
        },
        sysctls: sysctls
            .map(|one| (one.name.clone(), one.value.clone()))
            .collect(),
        grace_seconds: u32::try_from(grace).unwrap_or(30),
    };
    replace(
        &dir.join(layout::SANDBOX_FILE),
        &serde_json::to_vec(&sandbox)?,
    )
}

fn hosts(hostname: &str, address: Option<std::net::IpAddr>) -> String {
    let mut text = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n");
    if let Some(address) = address {
        text.extend([&address.to_string(), "\t", hostname, "\n"]);
    }
    text
}

/// All or nothing, also when the disk is full.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = file.with_extension("new");
    fs::write(&fresh, bytes)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    fs::rename(fresh, file)
}

/// The volumes of a pod, and what was read for them.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) volumes: Volumes,
    pub(crate) documents: Documents,
    /// After which tokens in them are to be renewed; none if there are none.
    pub(crate) fresh_for: Option<Duration>,
}

pub(crate) async fn prepare_volumes(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    dir: PathBuf,
) -> Result<Prepared, Failure> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let names = documents::names(&pod);
    let documents = documents::fetch(&shared.settings.client, &namespace, names).await?;
    let credentials = credentials(&pod, &documents)?;
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let images = volumes.filter_map(|volume| Some((volume.name.clone(), volume.image.as_ref()?)));
    let images = try_join_all(images.map(|(name, source)| {
        let (shared, credentials) = (&shared, &credentials);
        async move {
            let reference = source.reference.as_deref().unwrap_or_default();
            let policy = policy(source.pull_policy.as_deref(), reference);
            let image = shared
                .settings
                .images
                .ensure(reference, policy, credentials)
                .await;
            let what = format!("image of volume {name:?}");
            let image = image.map_err(|error| Failure::of(error.reason(), &what, &error))?;
            Ok::<_, Failure>((name, image))
        }
    }))
    .await?;
    let claims = storage::claimed(&shared, &pod).await?;
    let tokens = tokens::fetch(&shared.settings.client, &pod).await?;
    let fresh_for = tokens.fresh_for;
    let request = volumes::Request {
        pod,
        claims,
        tokens,
        pod_dir: dir,
        documents: documents.clone(),
        images: images.into_iter().collect::<BTreeMap<String, Image>>(),
        node_name: shared.settings.node_name.clone(),
        host_ip: shared.settings.address,
        version: version(),
    };
    let made = tokio::task::spawn_blocking(move || volumes::prepare(&request)).await;
    let volumes =
        made.map_err(|error| Failure::of(Reason::FailedMount, "prepare volumes", &error))??;
    Ok(Prepared {
        volumes,
        documents,
        fresh_for,
    })
}

/// Differs from call to call.
fn version() -> String {
    jiff::Timestamp::now().as_nanosecond().to_string()
}

/// Writes new tokens into the volumes of a pod that runs. Says for how long they are good.
pub(crate) async fn refresh_tokens(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    dir: PathBuf,
) -> Result<Option<Duration>, Failure> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let names = documents::names(&pod);
    let documents = documents::fetch(&shared.settings.client, &namespace, names).await?;
    let tokens = tokens::fetch(&shared.settings.client, &pod).await?;
    let fresh_for = tokens.fresh_for;
    let request = volumes::Request {
        pod,
        claims: BTreeMap::new(),
        tokens,
        pod_dir: dir,
        documents,
        images: BTreeMap::new(),
        node_name: shared.settings.node_name.clone(),
        host_ip: shared.settings.address,
        version: version(),
    };
    let done = tokio::task::spawn_blocking(move || volumes::refresh(&request)).await;
    done.map_err(|error| Failure::of(Reason::FailedMount, "renew tokens", &error))??;
    Ok(fresh_for)
}

fn credentials(pod: &Pod, documents: &Documents) -> Result<Credentials, Failure> {
    let mut all = Credentials::anonymous();
    let references = pod
        .spec
        .iter()
        .flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    for reference in references {
        let secret = documents.secret(&reference.name);
        // A missing pull secret is no error to kubelets either: the image may be public.
        if let Some(bytes) = secret.and_then(|mut data| data.remove(".dockerconfigjson")) {
            all.merge(
                Credentials::from_docker_config_json(&bytes).map_err(|error| {
                    Failure::of(
                        Reason::ErrImagePull,
                        &format!("read pull secret {:?}", reference.name),
                        &error,
                    )
                })?,
            );
        }
    }
    Ok(all)
}

fn policy(wanted: Option<&str>, reference: &str) -> PullPolicy {
    let last = reference.rsplit('/').next().unwrap_or_default();
    match wanted {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ if last.ends_with(":latest") || !last.contains([':', '@']) => PullPolicy::Always,
        _ => PullPolicy::IfNotPresent,
    }
}

pub(crate) async fn pull(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    wanted: Container,
) -> Result<Image, Failure> {
    let reference = wanted.image.clone().unwrap_or_default();
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let secrets = pod
        .spec
        .iter()
        .flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let names = documents::Names {
        secrets: secrets.map(|reference| reference.name.clone()).collect(),
        ..documents::Names::default()
    };
    let documents = documents::fetch(&shared.settings.client, &namespace, names).await?;
    let credentials = credentials(&pod, &documents)?;
    let policy = policy(wanted.image_pull_policy.as_deref(), &reference);
    let mut pull = shared
        .settings
        .images
        .ensure(&reference, policy, &credentials);
    let normal = |reason: Reason, note: String| {
        shared
            .recorder
            .publish(pod.as_ref(), EventType::Normal, reason, note);
    };
    let soon = tokio::time::timeout(NOTICEABLE, &mut pull).await;
    let (image, how) = if let Ok(image) = soon {
        (image, "is present on this node")
    } else {
        normal(Reason::Pulling, format!("Pulling image {reference:?}"));
        (pull.await, "was pulled and unpacked")
    };
    let image = image.map_err(|error| {
        Failure::of(
            error.reason(),
            &format!("Failed to pull image {reference:?}"),
            &error,
        )
    })?;
    normal(
        Reason::Pulled,
        format!("Container image {reference:?} {how}"),
    );
    Ok(image)
}

pub(crate) async fn join_network(
    shared: Arc<Shared>,
    uid: String,
    dir: PathBuf,
    status: PodStatus,
    host_network: bool,
) -> Result<Addresses, Failure> {
    if host_network {
        return Ok(Addresses {
            ips: vec![shared.settings.address],
        });
    }
    if let Some(record) = network_record(&dir)
        && record.namespace == status.network_namespace
    {
        return Ok(record.addresses);
    }
    let namespace = PathBuf::from(format!("/proc/{}/ns/net", status.supervisor.pid));
    let addresses = shared.settings.network.add(&uid, &namespace).await?;
    failpoints::after("embedded-node/pod/add-network");
    let record = NetworkRecord {
        namespace: status.network_namespace,
        addresses,
    };
    blocking(SANDBOX, "record the pod's addresses", move || {
        let hostname = fs::read_to_string(dir.join("etc/hostname"))?;
        let first = record.addresses.ips.first().copied();
        fs::write(dir.join("etc/hosts"), hosts(hostname.trim(), first))?;
        replace(&dir.join(NETWORK_FILE), &serde_json::to_vec(&record)?)?;
        Ok(record.addresses)
    })
    .await
}

pub(crate) fn network_record(dir: &Path) -> Option<NetworkRecord> {
    serde_json::from_slice(&fs::read(dir.join(NETWORK_FILE)).ok()?).ok()
}

/// Everything that the start of one container takes.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) pod: Arc<Pod>,
    pub(crate) container: Container,
    pub(crate) is_init: bool,
    pub(crate) image: Image,
    pub(crate) volumes: Volumes,
    pub(crate) documents: Documents,
    pub(crate) addresses: Addresses,
    pub(crate) dir: PathBuf,
    /// How often it failed already.
    pub(crate) tries: u32,
}

pub(crate) async fn start(shared: Arc<Shared>, mut start: Start) -> Result<(), Failure> {
    if start.tries > 0 {
        // What was missing may be there by now.
        let namespace = start.pod.metadata.namespace.clone().unwrap_or_default();
        let names = documents::names(&start.pod);
        start.documents = documents::fetch(&shared.settings.client, &namespace, names).await?;
    }
    let uid = start.pod.metadata.uid.as_deref().unwrap_or_default();
    let given = shared
        .devices
        .allocate((uid, &start.dir), &start.container)
        .await?;
    failpoints::after("embedded-node/pod/allocate-devices");
    let (rendered, dir) = {
        let shared = Arc::clone(&shared);
        let work = move || {
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
                given: &given,
                pod_dir: &start.dir,
                restart: spec.map_or(pod_supervisor::model::RestartPolicy::Never, |spec| {
                    container::restart_policy(spec, &start.container, start.is_init)
                }),
            })?;
            let record = start.dir.join(layout::container_dir(&start.container.name));
            fs::create_dir_all(&record)
                .and_then(|()| fs::write(record.join("image"), start.image.digest.as_str()))
                .map_err(|error| {
                    Failure::of(Reason::CreateContainerError, "write its files", &error)
                })?;
            failpoints::after("embedded-node/pod/write-container");
            Ok::<_, Failure>((rendered, start.dir))
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| Failure::of(Reason::CreateContainerError, "render it", &error))??
    };
    supervisor::ask(
        &dir,
        &Request::Start {
            container: Box::new(rendered),
        },
    )
    .await
    .map_err(|error| {
        Failure::of(
            Reason::CreateContainerError,
            "hand it to the supervisor",
            &error,
        )
    })
}

/// The digest of the image that a container was started from.
pub(crate) fn image_record(dir: &Path, container: &str) -> Option<String> {
    fs::read_to_string(dir.join(layout::container_dir(container)).join("image")).ok()
}

/// Ends one run of a container, nicely at first. What follows is its restart policy's business.
pub(crate) async fn kill_container(
    dir: PathBuf,
    container: String,
    attempt: u32,
    grace: Duration,
) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::of(Reason::FailedKillPod, "end an unhealthy container", &error);
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
    supervisor::ask(dir, &request).await
}

pub(crate) async fn stop(dir: PathBuf, grace: Duration) -> Result<(), Failure> {
    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    supervisor::ask(&dir, &Request::Shutdown { grace_ms })
        .await
        .map_err(|error| Failure::of(Reason::FailedKillPod, "ask the supervisor to end", &error))
}

pub(crate) async fn tear_down(
    shared: Arc<Shared>,
    uid: String,
    dir: PathBuf,
    left: Left,
) -> Result<Left, Failure> {
    shared.settings.network.delete(&uid).await?;
    failpoints::after("embedded-node/pod/delete-network");
    let group = shared.cgroup(&uid);
    let lock = teardown::end_processes(&group, &dir)
        .await
        .map_err(|error| Failure::of(Reason::FailedKillPod, "end the pod's processes", &error))?;
    failpoints::after("embedded-node/pod/end-processes");
    blocking(
        Reason::FailedKillPod,
        "remove the pod's mounts, cgroup and files",
        move || {
            cgroup::remove(&group)?;
            failpoints::after("embedded-node/pod/remove-cgroup");
            volumes::mounts::unmount_all(&dir)?;
            failpoints::after("embedded-node/pod/unmount-volumes");
            storage::in_use::give_back(&dir)?;
            failpoints::after("embedded-node/pod/give-back-volumes");
            shared.devices.release(&uid, &dir)?;
            failpoints::after("embedded-node/pod/release-devices");
            if left == Left::Nothing && dir.exists() {
                fs::remove_dir_all(&dir)?;
                failpoints::after("embedded-node/pod/remove-files");
            }
            drop(lock);
            Ok(left)
        },
    )
    .await
}

pub(crate) async fn report(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    status: Value,
) -> Result<(), Failure> {
    let Key { namespace, name } = Key::of(pod.as_ref());
    let api = Api::<Pod>::namespaced(shared.settings.client.clone(), &namespace);
    // The uid keeps the status from a pod of the same name that came after ours.
    let mut body = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let gates = pod.spec.as_ref().and_then(|s| s.readiness_gates.as_ref());
    let shares = gates.is_some_and(|gates| !gates.is_empty());
    if shares {
        // The list of conditions is written whole, and others write to it as well.
        body["metadata"]["resourceVersion"] = json!(pod.metadata.resource_version);
    }
    let parameters = kube::api::PatchParams {
        field_manager: Some(MANAGER.into()),
        ..kube::api::PatchParams::default()
    };
    match api
        .patch_status(&name, &parameters, &kube::api::Patch::Merge(&body))
        .await
    {
        Ok(_) => {
            failpoints::after("embedded-node/pod/report");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 && shares => {
            let message = "somebody else wrote to the pod meanwhile";
            Err(Failure::new(Reason::FailedStatus, message))
        }
        // Gone, or another pod by now: the watch tells.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
        Err(error) => Err(Failure::of(
            Reason::FailedStatus,
            "write the pod's status",
            &error,
        )),
    }
}

pub(crate) async fn forget(shared: Arc<Shared>, pod: Arc<Pod>) -> Result<(), Failure> {
    let key = Key::of(pod.as_ref());
    let api = Api::<Pod>::namespaced(shared.settings.client.clone(), &key.namespace);
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    match reconcile::delete(&api, &key, &uid, Some(0)).await {
        Ok(()) | Err(reconcile::WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Failure::of(Reason::FailedKillPod, "delete the pod", &error)),
    }
}

async fn blocking<T: Send + 'static>(
    reason: Reason,
    tried: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Failure::of(reason, tried, &error)),
        Err(error) => Err(Failure::of(reason, tried, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_defaults_by_tag() {
        for (wanted, reference, expected) in [
            (None, "a/b:1", PullPolicy::IfNotPresent),
            (None, "host:5000/b", PullPolicy::Always),
            (None, "b:latest", PullPolicy::Always),
            (None, "b@sha256:aa", PullPolicy::IfNotPresent),
            (Some("Never"), "b", PullPolicy::Never),
            (Some("Always"), "b:1", PullPolicy::Always),
        ] {
            assert_eq!(policy(wanted, reference), expected, "{reference}");
        }
    }
}
