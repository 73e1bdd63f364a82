//! The state shared by all tasks of the node.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use parking_lot::Mutex;
use pod_supervisor::layout;
use reconcile::{Key, Recorder, Store};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::{
    cpus::Cpus,
    devices::Devices,
    disk::Disk,
    endpoint::LogReaders,
    pod::Desired,
    policies::Policies,
    schedule::{self, Obstacle},
    services::Services,
    slots::Slots,
    storage::{self, Storage},
    users::Users,
};

/// State shared by all tasks of the node.
pub(crate) struct Shared {
    pub(crate) settings: NodeSettings,
    pub(crate) recorder: Recorder,
    pub(crate) pods: Store<Pod>,
    pub(crate) node: Store<Node>,
    pub(crate) storage: Storage,
    pub(crate) services: Services,
    pub(crate) policies: Policies,
    /// Notifies of changes that a waiting pod may need: the node, a claim or free capacity.
    pub(crate) node_changed: watch::Sender<()>,
    pub(crate) devices: Devices,
    pub(crate) cpus: Cpus,
    pub(crate) slots: Slots,
    pub(crate) disk: Disk,
    pub(crate) log_readers: LogReaders,
    pub(crate) users: Users,
    /// Reaps the supervisors started by this process.
    pub(crate) children: TaskTracker,
    pub(super) workers: Mutex<HashMap<String, watch::Sender<Desired>>>,
    pub(super) tasks: TaskTracker,
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
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) cgroup_parent: String,
    pub(crate) resolver: crate::Resolver,
    pub(crate) volume_refresh: std::time::Duration,
}

impl Shared {
    pub(crate) fn pods_dir(&self) -> PathBuf {
        self.settings.root.join("pods")
    }

    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods_dir().join(uid)
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

    /// The resources that the node offers to pods.
    pub(crate) fn allocatable(&self) -> BTreeMap<String, Quantity> {
        let node = self
            .node
            .get(&Key::new("", self.settings.node_name.as_str()));
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        let known = status.and_then(|status| status.allocatable.clone());
        known.unwrap_or_default()
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
            .or_else(|| self.cpus.obstacle(pod))
            .or_else(|| self.disk.obstacle())
            .map(Obstacle::Unschedulable)
            .or_else(|| storage::obstacle(self, pod))
            .or_else(|| {
                let admitted = self.slots.admit(pod, &node, &self.pods.list());
                admitted.err().map(Obstacle::Unschedulable)
            })
    }
}
