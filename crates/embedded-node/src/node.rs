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
    pod::{self, Wanted},
    registration,
    room::{self, Room},
    schedule::{self, Obstacle},
    services::{self, Services},
    storage::{self, Storage},
};

/// A kubelet for this host.
pub struct EmbeddedNode {
    shared: Arc<Shared>,
    recorders: [RecorderTask; 2],
    endpoint: Endpoint,
}

/// What all tasks of the node share.
pub(crate) struct Shared {
    pub(crate) settings: Known,
    pub(crate) recorder: Recorder,
    pub(crate) pods: Store<Pod>,
    pub(crate) node: Store<Node>,
    pub(crate) storage: Storage,
    pub(crate) services: Services,
    /// The node itself, or what a pod may wait for: a claim, or the room that another takes.
    pub(crate) node_changed: watch::Sender<()>,
    pub(crate) devices: Devices,
    pub(crate) room: Room,
    /// Supervisors that are our children.
    pub(crate) children: TaskTracker,
    workers: Mutex<HashMap<String, watch::Sender<Wanted>>>,
    tasks: TaskTracker,
}

/// The settings without what only one task needs.
pub(crate) struct Known {
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

/// Names the parent of all pods' cgroups, so that it can be removed without settings.
pub(crate) const CGROUP_PARENT_FILE: &str = "cgroup-parent";

impl EmbeddedNode {
    /// Checks that pods can run here at all. Nothing is changed but for the node's directory.
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
        let left = pod_dirs(&settings.root);
        let left = left.iter().map(|(uid, dir)| (uid.as_str(), dir.as_path()));
        let devices =
            Devices::open(&settings.root, left).map_err(|source| NodeError::Directory {
                dir: settings.root.clone(),
                source,
            })?;
        let client = settings.client.clone();
        let (recorder, task) = reconcile::recorder(client.clone(), "kubelet", settings.clock);
        let (of_storage, storage_task) =
            reconcile::recorder(client, "persistentvolume-controller", settings.clock);
        let shared = Shared {
            settings: Known {
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
            storage: Storage::new(of_storage),
            services: Services::new(),
            node_changed: watch::Sender::new(()),
            devices,
            room: Room::default(),
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

    /// Runs until `stop`. Pods go on without us and are taken over by the next call.
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
        // Read before the first pod can be begun: a directory in the making is no leftover.
        let left = pod_dirs(&shared.settings.root);
        tasks.spawn(take_up(Arc::clone(&shared), left, stop.clone()));
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
    if !known.split_whitespace().any(|word| word == "overlay") {
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
        // What a pod lacked may have come, and its claims wait for a pod that lacks nothing else.
        shared.storage.on_supply();
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

/// Takes down what an earlier node process left of pods that the API server does not know any more.
async fn take_up(shared: Arc<Shared>, left: Vec<(String, PathBuf)>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = shared.pods.ready() => {}
    }
    let pods = shared.pods.list();
    let known: HashSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.metadata.uid.as_deref())
        .collect();
    for (uid, dir) in left {
        if !known.contains(uid.as_str()) {
            let pod = left_object(&uid, &dir);
            shared.begin(Arc::new(pod), Wanted::Gone, &stop);
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

fn left_object(uid: &str, dir: &Path) -> Pod {
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
        // What runs goes on where it was started, whatever the settings say by now.
        let file = self.pod_dir(uid).join(layout::SANDBOX_FILE);
        let known = fs::read(file).ok().and_then(|bytes| {
            serde_json::from_slice::<pod_supervisor::model::Sandbox>(&bytes).ok()
        });
        known.map_or_else(
            || format!("{}/pod{uid}", self.settings.cgroup_parent),
            |sandbox| sandbox.cgroup,
        )
    }

    /// Why this pod cannot be bound to this node now. If it can, there is room for it from now on.
    pub(crate) fn obstacle(&self, pod: &Pod) -> Option<Obstacle> {
        let key = Key::new("", self.settings.node_name.as_str());
        let Some(node) = self.node.get(&key) else {
            let why = "0/1 nodes are available: the node is being registered";
            return Some(Obstacle::Unschedulable(why.into()));
        };
        schedule::obstacle(pod, &node)
            .or_else(|| self.devices.obstacle(pod))
            .map(Obstacle::Unschedulable)
            .or_else(|| storage::obstacle(self, pod))
            .or_else(|| {
                let entered = self.room.enter(pod, &node, &self.pods.list());
                entered.err().map(Obstacle::Unschedulable)
            })
    }

    /// Tells the pod's task, if it has or should have one, what the API server says now.
    fn on_pod(self: &Arc<Self>, pod: &Pod, stop: &CancellationToken) {
        self.storage.on_pod(pod);
        self.services.changed("pod");
        let Some(uid) = pod.metadata.uid.as_deref().filter(|uid| is_plain(uid)) else {
            return;
        };
        let current = self
            .pods
            .get(&Key::of(pod))
            .filter(|current| current.metadata.uid.as_deref() == Some(uid));
        if current.as_deref().is_none_or(room::is_over) {
            self.node_changed.send_replace(());
        }
        let wanted = current.map_or(Wanted::Gone, Wanted::Pod);
        if let Some(worker) = self.workers.lock().get(uid) {
            worker.send_replace(wanted);
            return;
        }
        if let Wanted::Pod(pod) = &wanted
            && self.is_ours(pod)
        {
            self.begin(Arc::clone(pod), wanted.clone(), stop);
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node == Some(self.settings.node_name.as_str()) || schedule::is_ours_to_bind(pod)
    }

    fn begin(self: &Arc<Self>, pod: Arc<Pod>, wanted: Wanted, stop: &CancellationToken) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let (sender, receiver) = watch::channel(wanted);
        self.workers.lock().insert(uid.clone(), sender);
        let (shared, stop) = (Arc::clone(self), stop.clone());
        self.tasks.spawn(async move {
            pod::run(Arc::clone(&shared), pod, receiver, stop).await;
            shared.workers.lock().remove(&uid);
        });
    }
}

/// Uids become directory names.
fn is_plain(uid: &str) -> bool {
    !uid.is_empty()
        && uid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
