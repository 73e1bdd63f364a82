//! The node: registers itself, watches pods, and keeps one task per pod.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::watcher;
use parking_lot::Mutex;
use pod_supervisor::layout;
use reconcile::{Key, Recorder, RecorderTask, Store};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Endpoint, NodeError, Settings,
    devices::Devices,
    endpoint,
    pod::{self, Desired},
    registration,
    schedule::{self, Obstacle},
    services::{self, Services},
    slots::{self, Slots},
    storage::{self, Storage},
};

/// A kubelet for this host.
pub struct EmbeddedNode {
    shared: Arc<Shared>,
    recorders: [RecorderTask; 2],
    endpoint: Endpoint,
}

/// State shared by all tasks of the node.
pub(crate) struct Shared {
    pub(crate) settings: NodeSettings,
    pub(crate) recorder: Recorder,
    pub(crate) pods: Store<Pod>,
    pub(crate) node: Store<Node>,
    pub(crate) storage: Storage,
    pub(crate) services: Services,
    /// Notifies of changes that a waiting pod may need: the node, a claim or free capacity.
    pub(crate) node_changed: watch::Sender<()>,
    pub(crate) devices: Devices,
    pub(crate) slots: Slots,
    /// Reaps the supervisors started by this process.
    pub(crate) children: TaskTracker,
    workers: Mutex<HashMap<String, watch::Sender<Desired>>>,
    tasks: TaskTracker,
}

/// The settings that more than one task needs.
pub(crate) struct NodeSettings {
    pub(crate) node_name: String,
    pub(crate) root: PathBuf,
    pub(crate) supervisor: PathBuf,
    pub(crate) client: kube::Client,
    pub(crate) images: Arc<dyn crate::Images>,
    pub(crate) network: Arc<dyn crate::Network>,
    pub(crate) clock: reconcile::Clock,
    pub(crate) address: std::net::IpAddr,
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    pub(crate) cgroup_parent: String,
    pub(crate) resolver: crate::Resolver,
}

/// File with the parent of all pods' cgroups, so that it can be removed without settings.
pub(crate) const CGROUP_PARENT_FILE: &str = "cgroup-parent";

impl EmbeddedNode {
    /// Checks that this host can run pods. Changes nothing except the node's directory.
    pub fn new(settings: Settings) -> Result<Self, NodeError> {
        check_host(&settings)?;
        let pods = settings.root.join("pods");
        fs::create_dir_all(&pods)
            .and_then(|()| {
                let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
                fs::set_permissions(&pods, private)
            })
            .and_then(|()| {
                fs::write(
                    settings.root.join(CGROUP_PARENT_FILE),
                    &settings.cgroup_parent,
                )
            })
            .map_err(|source| NodeError::Directory { dir: pods, source })?;
        let dirs = pod_dirs(&settings.root);
        let dirs = dirs.iter().map(|(uid, dir)| (uid.as_str(), dir.as_path()));
        let devices =
            Devices::open(&settings.root, dirs).map_err(|source| NodeError::Directory {
                dir: settings.root.clone(),
                source,
            })?;
        let client = settings.client.clone();
        let (recorder, task) = reconcile::recorder(client.clone(), "kubelet", settings.clock);
        let (storage_recorder, storage_task) =
            reconcile::recorder(client, "persistentvolume-controller", settings.clock);
        let shared = Shared {
            settings: NodeSettings {
                node_name: settings.node_name,
                root: settings.root,
                supervisor: settings.supervisor,
                client: settings.client,
                images: settings.images,
                network: settings.network,
                clock: settings.clock,
                address: settings.address,
                labels: settings.labels,
                cgroup_parent: settings.cgroup_parent,
                resolver: settings.resolver,
            },
            recorder,
            pods: Store::new(),
            node: Store::new(),
            storage: Storage::new(storage_recorder),
            services: Services::new(),
            node_changed: watch::Sender::new(()),
            devices,
            slots: Slots::default(),
            children: TaskTracker::new(),
            workers: Mutex::default(),
            tasks: TaskTracker::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            recorders: [task, storage_task],
            endpoint: settings.endpoint,
        })
    }

    /// Runs until `stop`. Pods keep running and are adopted by the next call.
    pub async fn run(self, stop: CancellationToken) -> Result<(), NodeError> {
        let shared = self.shared;
        let port = self.endpoint.address().map_or(0, |address| address.port());
        let tasks = shared.tasks.clone();
        for recorder in self.recorders {
            tasks.spawn(recorder.run(stop.clone()));
        }
        tasks.spawn(endpoint::serve(
            Arc::clone(&shared),
            self.endpoint,
            stop.clone(),
        ));
        tasks.spawn(watch_node(Arc::clone(&shared), stop.clone()));
        match shared.devices.listen() {
            Ok(plugins) => drop(tasks.spawn(plugins)),
            Err(source) => {
                stop.cancel();
                let dir = shared.settings.root.clone();
                return Err(NodeError::Directory { dir, source });
            }
        }
        let registered = tokio::select! {
            () = stop.cancelled() => Ok(()),
            registered = registration::register(&shared.settings, &shared.devices, port) => registered,
        };
        if let Err(error) = registered {
            stop.cancel();
            shared.devices.close().await;
            tasks.close();
            tasks.wait().await;
            return Err(error);
        }
        tasks.spawn(registration::renew(Arc::clone(&shared), port, stop.clone()));
        let dns = services::open(&shared).await;
        tasks.spawn(services::run(Arc::clone(&shared), dns, stop.clone()));
        // Before the first pod can start, so that a new directory is not taken for an old one.
        let dirs = pod_dirs(&shared.settings.root);
        tasks.spawn(adopt_unknown(Arc::clone(&shared), dirs, stop.clone()));
        tasks.spawn(watch_pods(Arc::clone(&shared), stop.clone()));
        tasks.spawn(storage::run(Arc::clone(&shared), stop.clone()));
        stop.cancelled().await;
        shared.devices.close().await;
        tasks.close();
        tasks.wait().await;
        Ok(())
    }
}

impl std::fmt::Debug for EmbeddedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedNode").finish_non_exhaustive()
    }
}

fn check_host(settings: &Settings) -> Result<(), NodeError> {
    if !rustix::process::geteuid().is_root() {
        return Err(NodeError::NotRoot);
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.split_whitespace().any(|name| name == "overlay") {
        return Err(NodeError::NoOverlay);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if !mounts.contains(" - cgroup") {
        return Err(NodeError::NoCgroups);
    }
    if !settings.supervisor.is_file() {
        return Err(NodeError::NoSupervisor {
            path: settings.supervisor.clone(),
        });
    }
    Ok(())
}

async fn watch_node(shared: Arc<Shared>, stop: CancellationToken) {
    let name = &shared.settings.node_name;
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let wake = |_: &Node| {
        // A waiting pod may fit now, and its claims wait for a pod that fits.
        shared.storage.requeue_unbound();
        shared.node_changed.send_replace(());
    };
    let client = shared.settings.client.clone();
    reconcile::watch(client, config, shared.node.clone(), wake, stop).await;
}

async fn watch_pods(shared: Arc<Shared>, stop: CancellationToken) {
    let wake = |pod: &Pod| shared.on_pod(pod, &stop);
    let (client, store) = (shared.settings.client.clone(), shared.pods.clone());
    reconcile::watch(
        client,
        watcher::Config::default(),
        store,
        wake,
        stop.clone(),
    )
    .await;
}

/// Tears down pods of an earlier node process that the API server does not know any more.
async fn adopt_unknown(shared: Arc<Shared>, dirs: Vec<(String, PathBuf)>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = shared.pods.ready() => {}
    }
    let pods = shared.pods.list();
    let known: HashSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.metadata.uid.as_deref())
        .collect();
    for (uid, dir) in dirs {
        if !known.contains(uid.as_str()) {
            let pod = recorded_object(&uid, &dir);
            shared.start_worker(Arc::new(pod), Desired::Deleted, &stop);
        }
    }
}

/// Every pod directory below a node's root, by the pod's uid.
pub(crate) fn pod_dirs(root: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(root.join("pods")) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect()
}

fn recorded_object(uid: &str, dir: &Path) -> Pod {
    let read = fs::read(dir.join(pod::OBJECT_FILE)).ok();
    let mut pod: Pod = read
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    pod.metadata.uid = Some(uid.to_owned());
    pod
}

impl Shared {
    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.settings.root.join("pods").join(uid)
    }

    pub(crate) fn cgroup(&self, uid: &str) -> String {
        // A running pod stays in its cgroup, even if the settings have changed.
        let file = self.pod_dir(uid).join(layout::SANDBOX_FILE);
        let known = fs::read(file).ok().and_then(|bytes| {
            serde_json::from_slice::<pod_supervisor::model::Sandbox>(&bytes).ok()
        });
        known.map_or_else(
            || format!("{}/pod{uid}", self.settings.cgroup_parent),
            |sandbox| sandbox.cgroup,
        )
    }

    /// Why this pod cannot be bound to this node now. If it can, its slot is reserved.
    pub(crate) fn obstacle(&self, pod: &Pod) -> Option<Obstacle> {
        let key = Key::new("", self.settings.node_name.as_str());
        let Some(node) = self.node.get(&key) else {
            let message = "0/1 nodes are available: the node is being registered";
            return Some(Obstacle::Unschedulable(message.into()));
        };
        schedule::obstacle(pod, &node)
            .or_else(|| self.devices.obstacle(pod))
            .map(Obstacle::Unschedulable)
            .or_else(|| storage::obstacle(self, pod))
            .or_else(|| {
                let admitted = self.slots.admit(pod, &node, &self.pods.list());
                admitted.err().map(Obstacle::Unschedulable)
            })
    }

    /// Sends the pod's state on the API server to its worker; starts one if needed.
    fn on_pod(self: &Arc<Self>, pod: &Pod, stop: &CancellationToken) {
        self.storage.on_pod(pod);
        self.services.requeue();
        let Some(uid) = pod
            .metadata
            .uid
            .as_deref()
            .filter(|uid| is_directory_name(uid))
        else {
            return;
        };
        let current = self
            .pods
            .get(&Key::of(pod))
            .filter(|current| current.metadata.uid.as_deref() == Some(uid));
        if current.as_deref().is_none_or(slots::has_ended) {
            self.node_changed.send_replace(());
        }
        let desired = current.map_or(Desired::Deleted, Desired::Pod);
        if let Some(worker) = self.workers.lock().get(uid) {
            worker.send_replace(desired);
            return;
        }
        if let Desired::Pod(pod) = &desired
            && self.is_ours(pod)
        {
            self.start_worker(Arc::clone(pod), desired.clone(), stop);
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node == Some(self.settings.node_name.as_str()) || schedule::is_ours_to_bind(pod)
    }

    fn start_worker(self: &Arc<Self>, pod: Arc<Pod>, desired: Desired, stop: &CancellationToken) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let (sender, receiver) = watch::channel(desired);
        self.workers.lock().insert(uid.clone(), sender);
        let (shared, stop) = (Arc::clone(self), stop.clone());
        self.tasks.spawn(async move {
            pod::run(Arc::clone(&shared), pod, receiver, stop).await;
            shared.workers.lock().remove(&uid);
        });
    }
}

/// Uids become directory names.
fn is_directory_name(uid: &str) -> bool {
    !uid.is_empty()
        && uid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
