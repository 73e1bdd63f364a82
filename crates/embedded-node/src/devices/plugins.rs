//! The device plugins of this node: their registrations, device lists and allocations.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use device_plugin::{
    AllocateRequest, Code, ContainerAllocateRequest, HEALTHY, KUBELET_SOCKET, Kubelet,
    ListAndWatchResponse, PluginClient, RegisterRequest, Registrations, Status,
};
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use reasons::Reason;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Allocation, Amounts, RECORD_FILE,
    registry::{Health, Registry, Request},
    requested,
};
use crate::Failure;

/// Below a node's root.
const DIRECTORY: &str = "device-plugins";
/// Bounds the memory that faulty plugins can take.
const MAX_RESOURCES: usize = 64;
/// Per resource.
const MAX_DEVICES: usize = 10_000;
const CONTAINER_ERROR: Reason = Reason::CreateContainerError;

/// The devices of this node.
#[derive(Debug, Clone)]
pub(crate) struct Devices(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    state: Mutex<State>,
    /// Notifies that amounts or free devices may have changed.
    changed: watch::Sender<()>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    plugins: HashMap<String, Plugin>,
}

/// The current plugin of a resource; a later registration replaces it.
#[derive(Debug)]
struct Plugin {
    client: Option<Arc<PluginClient>>,
    replaced: CancellationToken,
}

/// The plugin whose device list is applied.
#[derive(Clone, Copy)]
struct Current<'a> {
    client: &'a Arc<PluginClient>,
    replaced: &'a CancellationToken,
}

/// A pod that holds devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder<'a> {
    pub(crate) uid: &'a str,
    pub(crate) dir: &'a Path,
}

impl Devices {
    /// Makes the directory of sockets and loads the pods' allocations.
    pub(crate) fn open<'a>(
        root: &Path,
        pods: impl Iterator<Item = (&'a str, &'a Path)>,
    ) -> io::Result<Self> {
        let dir = root.join(DIRECTORY);
        fs::create_dir_all(&dir)?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&dir, private)?;
        let state = State {
            registry: Registry::of_pods(pods)?,
            plugins: HashMap::new(),
        };
        Ok(Self(Arc::new(Inner {
            dir,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })))
    }

    /// Listens for plugins. Removes old sockets: plugins take that, and the new `kubelet.sock`, as
    /// the signal to register again.
    pub(crate) fn listen(&self) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        for entry in fs::read_dir(&self.0.dir)? {
            let entry = entry?;
            if std::os::unix::fs::FileTypeExt::is_socket(&entry.file_type()?) {
                fs::remove_file(entry.path())?;
            }
        }
        let kubelet = Kubelet::new(device_plugin::bind(&self.0.dir, KUBELET_SOCKET)?);
        Ok(kubelet.serve(self.clone(), self.0.stop.clone()))
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    pub(crate) fn amounts(&self) -> BTreeMap<String, Amounts> {
        self.0.state.lock().registry.amounts()
    }

    /// A scheduler's message if too few devices for the pod are free.
    pub(crate) fn obstacle(&self, pod: &Pod) -> Option<String> {
        let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            for (name, count) in requested(container) {
                let sum = sums.entry(name).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        let state = self.0.state.lock();
        sums.into_iter()
            .find(|(name, count)| state.registry.free(name) < *count)
            .map(|(name, _)| format!("0/1 nodes are available: 1 Insufficient {name}"))
    }

    /// Allocates devices to a container; repeated calls return the same ones.
    pub(crate) async fn allocate(
        &self,
        holder: Holder<'_>,
        container: &Container,
    ) -> Result<Allocation, Failure> {
        let mut allocation = Allocation::default();
        for (resource, count) in requested(container) {
            let wanted = Request {
                pod: holder.uid,
                container: &container.name,
                resource,
                count,
            };
            let (client, device_ids) = self.take(&wanted, holder.dir)?;
            let request = AllocateRequest {
                container_requests: vec![ContainerAllocateRequest { device_ids }],
            };
            let tried = || format!("call the device plugin for {resource}");
            let response = client
                .allocate(&request)
                .await
                .map_err(|error| Failure::of(CONTAINER_ERROR, &tried(), &error))?;
            for response in response.container_responses {
                allocation.add(response)?;
            }
        }
        Ok(allocation)
    }

    fn take(
        &self,
        request: &Request<'_>,
        dir: &Path,
    ) -> Result<(Arc<PluginClient>, Vec<String>), Failure> {
        let resource = request.resource;
        let mut state = self.0.state.lock();
        let client = state
            .plugins
            .get(resource)
            .and_then(|plugin| plugin.client.clone());
        let Some(client) = client else {
            let message = format!("no device plugin for {resource} is registered");
            return Err(Failure::new(CONTAINER_ERROR, message));
        };
        let Some(ids) = state.registry.allocate(request) else {
            let message = format!("fewer than {} of {resource} are free", request.count);
            return Err(Failure::new(CONTAINER_ERROR, message));
        };
        // Under the lock, so that records are written in the order of the allocations.
        write_record(&state.registry, request.pod, dir).map_err(|error| {
            Failure::of(CONTAINER_ERROR, "record the container's devices", &error)
        })?;
        Ok((client, ids))
    }

    /// The pod has ended: its devices are free.
    pub(crate) fn release(&self, uid: &str, dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(RECORD_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if self.0.state.lock().registry.release(uid) {
            self.0.changed.send_replace(());
        }
        Ok(())
    }

    /// Follows a plugin until it ends or is replaced.
    async fn follow(self, request: RegisterRequest, replaced: CancellationToken) {
        let resource = request.resource_name.clone();
        let ended = tokio::select! {
            () = self.0.stop.cancelled() => return,
            () = replaced.cancelled() => return,
            ended = self.follow_lists(&request, &replaced) => ended,
        };
        match ended {
            Ok(()) => tracing::info!(resource, "device plugin ended"),
            Err(error) => tracing::info!(resource, %error, "device plugin ended"),
        }
        let mut state = self.0.state.lock();
        if !replaced.is_cancelled() {
            state.plugins.remove(&resource);
            state.registry.mark_unhealthy(&resource);
            drop(state);
            self.0.changed.send_replace(());
        }
    }

    async fn follow_lists(
        &self,
        request: &RegisterRequest,
        replaced: &CancellationToken,
    ) -> Result<(), Status> {
        let client = PluginClient::connect(&self.0.dir, &request.endpoint).await?;
        let client = Arc::new(client);
        let mut lists = client.list_and_watch().await?;
        while let Some(list) = lists.next().await? {
            let current = Current {
                client: &client,
                replaced,
            };
            self.update(&request.resource_name, list, current);
        }
        Ok(())
    }

    /// Applies a device list, unless the plugin was replaced.
    fn update(&self, resource: &str, list: ListAndWatchResponse, current: Current<'_>) {
        let mut state = self.0.state.lock();
        if current.replaced.is_cancelled() {
            return;
        }
        if let Some(plugin) = state.plugins.get_mut(resource) {
            plugin.client = Some(Arc::clone(current.client));
        }
        let devices = list.devices.into_iter().take(MAX_DEVICES).map(|device| {
            let health = if device.health == HEALTHY {
                Health::Healthy
            } else {
                Health::Unhealthy
            };
            (device.id, health)
        });
        state.registry.list(resource, devices);
        drop(state);
        self.0.changed.send_replace(());
    }
}

impl Registrations for Devices {
    async fn register(&self, request: RegisterRequest) -> Result<(), Status> {
        let resource = request.resource_name.clone();
        if !is_device_name(&resource) {
            let message = format!("{resource:?} is not a device resource name");
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let replaced = CancellationToken::new();
        {
            let mut state = self.0.state.lock();
            if state.plugins.len() >= MAX_RESOURCES && !state.plugins.contains_key(&resource) {
                let message = format!("{MAX_RESOURCES} resources are registered already");
                return Err(Status::new(Code::ResourceExhausted, message));
            }
            let plugin = Plugin {
                client: None,
                replaced: replaced.clone(),
            };
            if let Some(old) = state.plugins.insert(resource.clone(), plugin) {
                old.replaced.cancel();
            }
        }
        tracing::info!(
            resource,
            endpoint = request.endpoint,
            "device plugin registered"
        );
        self.0.tasks.spawn(self.clone().follow(request, replaced));
        Ok(())
    }
}

/// `domain/name`, and not reserved for Kubernetes.
fn is_device_name(name: &str) -> bool {
    let plain = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && part.len() <= 253 && part.bytes().all(allowed)
    };
    name.split_once('/').is_some_and(|(domain, name)| {
        plain(domain)
            && plain(name)
            && domain != "kubernetes.io"
            && !domain.ends_with(".kubernetes.io")
    })
}

fn write_record(registry: &Registry, pod: &str, dir: &Path) -> io::Result<()> {
    let Some(record) = registry.record(pod) else {
        return Ok(());
    };
    let path = dir.join(RECORD_FILE);
    durable_file::replace(&path, &serde_json::to_vec(record)?, durable_file::PRIVATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_have_a_domain_outside_kubernetes() {
        for good in ["devices.kubevirt.io/kvm", "a.b/c_d"] {
            assert!(is_device_name(good), "{good}");
        }
        for bad in [
            "kvm",
            "a/",
            "/b",
            "a/b/c",
            "kubernetes.io/x",
            "x.kubernetes.io/y",
            "a b/c",
        ] {
            assert!(!is_device_name(bad), "{bad}");
        }
    }
}
