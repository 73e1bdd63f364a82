//! The plugins of this node: hearing them, asking them.

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
    Amounts, Given, RECORD_FILE,
    book::{Book, Claim, Health},
    wanted,
};
use crate::Failure;

/// Below a node's root.
const DIRECTORY: &str = "device-plugins";
/// Resources that plugins may bring, so that a mad one cannot fill the memory.
const RESOURCES: usize = 64;
/// Devices of one of them.
const DEVICES: usize = 10_000;
const CONTAINER_ERROR: Reason = Reason::CreateContainerError;

/// The devices of this node.
#[derive(Debug, Clone)]
pub(crate) struct Devices(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    state: Mutex<State>,
    /// Says that amounts or what is free may have changed.
    changed: watch::Sender<()>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug)]
struct State {
    book: Book,
    plugins: HashMap<String, Voice>,
}

/// The plugin that speaks for a resource now; a later one takes its place.
#[derive(Debug)]
struct Voice {
    client: Option<Arc<PluginClient>>,
    replaced: CancellationToken,
}

impl Devices {
    /// Makes the directory of sockets and learns what the pods hold.
    pub(crate) fn open<'a>(
        root: &Path,
        pods: impl Iterator<Item = (&'a str, &'a Path)>,
    ) -> io::Result<Self> {
        let dir = root.join(DIRECTORY);
        fs::create_dir_all(&dir)?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&dir, private)?;
        let state = State {
            book: Book::of_pods(pods)?,
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

    /// Listens for plugins. Sockets that earlier ones left are removed: plugins take that, and the
    /// new `kubelet.sock`, as the sign to register again.
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

    /// Ends all conversations.
    pub(crate) async fn close(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    pub(crate) fn amounts(&self) -> BTreeMap<String, Amounts> {
        self.0.state.lock().book.amounts()
    }

    /// Why the pod would not get its devices now, in the words of a scheduler.
    pub(crate) fn obstacle(&self, pod: &Pod) -> Option<String> {
        let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            for (name, count) in wanted(container) {
                let sum = sums.entry(name).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        let state = self.0.state.lock();
        sums.into_iter()
            .find(|(name, count)| state.book.free(name) < *count)
            .map(|(name, _)| format!("0/1 nodes are available: 1 Insufficient {name}"))
    }

    /// Gives a container its devices, the same ones whenever it is asked.
    pub(crate) async fn allocate(
        &self,
        (uid, dir): (&str, &Path),
        container: &Container,
    ) -> Result<Given, Failure> {
        let mut given = Given::default();
        for (resource, count) in wanted(container) {
            let claim = Claim {
                pod: uid,
                container: &container.name,
                resource,
                count,
            };
            let (client, device_ids) = self.take(&claim, dir)?;
            let request = AllocateRequest {
                container_requests: vec![ContainerAllocateRequest { device_ids }],
            };
            let tried = || format!("ask the device plugin for {resource}");
            let answer = client
                .allocate(&request)
                .await
                .map_err(|error| Failure::of(CONTAINER_ERROR, &tried(), &error))?;
            for answer in answer.container_responses {
                given.add(answer)?;
            }
        }
        Ok(given)
    }

    fn take(
        &self,
        claim: &Claim<'_>,
        dir: &Path,
    ) -> Result<(Arc<PluginClient>, Vec<String>), Failure> {
        let resource = claim.resource;
        let mut state = self.0.state.lock();
        let client = state
            .plugins
            .get(resource)
            .and_then(|voice| voice.client.clone());
        let Some(client) = client else {
            let message = format!("no device plugin offers {resource} now");
            return Err(Failure::new(CONTAINER_ERROR, message));
        };
        let Some(ids) = state.book.take(claim) else {
            let message = format!("fewer than {} of {resource} are free", claim.count);
            return Err(Failure::new(CONTAINER_ERROR, message));
        };
        // Under the lock, so that records are written in the order of their making.
        write_record(&state.book, claim.pod, dir)
            .map_err(|error| Failure::of(CONTAINER_ERROR, "note its devices", &error))?;
        Ok((client, ids))
    }

    /// The pod is over: others may have its devices.
    pub(crate) fn release(&self, uid: &str, dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(RECORD_FILE)) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        if self.0.state.lock().book.release(uid) {
            self.0.changed.send_replace(());
        }
        Ok(())
    }

    /// Listens to a plugin until it ends or another takes its place.
    async fn hear(self, request: RegisterRequest, replaced: CancellationToken) {
        let resource = request.resource_name.clone();
        let ended = tokio::select! {
            () = self.0.stop.cancelled() => return,
            () = replaced.cancelled() => return,
            ended = self.follow(&request, &replaced) => ended,
        };
        tracing::info!(resource, why = %ended.err().map_or_else(String::new, |err| err.to_string()),
            "a device plugin is gone");
        let mut state = self.0.state.lock();
        if !replaced.is_cancelled() {
            state.plugins.remove(&resource);
            state.book.forsake(&resource);
            drop(state);
            self.0.changed.send_replace(());
        }
    }

    async fn follow(
        &self,
        request: &RegisterRequest,
        replaced: &CancellationToken,
    ) -> Result<(), Status> {
        let client = PluginClient::connect(&self.0.dir, &request.endpoint).await?;
        let client = Arc::new(client);
        let mut lists = client.list_and_watch().await?;
        while let Some(list) = lists.next().await? {
            self.note(&request.resource_name, list, (&client, replaced));
        }
        Ok(())
    }

    fn note(
        &self,
        resource: &str,
        list: ListAndWatchResponse,
        (client, replaced): (&Arc<PluginClient>, &CancellationToken),
    ) {
        let mut state = self.0.state.lock();
        if replaced.is_cancelled() {
            return;
        }
        if let Some(voice) = state.plugins.get_mut(resource) {
            voice.client = Some(Arc::clone(client));
        }
        let devices = list.devices.into_iter().take(DEVICES).map(|device| {
            let health = if device.health == HEALTHY {
                Health::Healthy
            } else {
                Health::Unhealthy
            };
            (device.id, health)
        });
        state.book.list(resource, devices);
        drop(state);
        self.0.changed.send_replace(());
    }
}

impl Registrations for Devices {
    async fn register(&self, request: RegisterRequest) -> Result<(), Status> {
        let resource = request.resource_name.clone();
        if !is_device_name(&resource) {
            let message = format!("{resource:?} is no name of a device resource");
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let replaced = CancellationToken::new();
        {
            let mut state = self.0.state.lock();
            if state.plugins.len() >= RESOURCES && !state.plugins.contains_key(&resource) {
                let message = format!("{RESOURCES} resources are registered already");
                return Err(Status::new(Code::ResourceExhausted, message));
            }
            let voice = Voice {
                client: None,
                replaced: replaced.clone(),
            };
            if let Some(old) = state.plugins.insert(resource.clone(), voice) {
                old.replaced.cancel();
            }
        }
        tracing::info!(
            resource,
            endpoint = request.endpoint,
            "a device plugin is here"
        );
        self.0.tasks.spawn(self.clone().hear(request, replaced));
        Ok(())
    }
}

/// `domain/name`, and not one of Kubernetes' own.
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

fn write_record(book: &Book, pod: &str, dir: &Path) -> io::Result<()> {
    let Some(record) = book.record(pod) else {
        return Ok(());
    };
    let path = dir.join(RECORD_FILE);
    let fresh = path.with_extension("part");
    fs::write(&fresh, serde_json::to_vec(record)?)?;
    fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_have_a_domain_that_is_not_kubernetes_own() {
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
