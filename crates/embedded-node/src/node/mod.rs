//! The node: registers itself, watches pods, and runs one task per pod.
//!
//! [`state`] is the state of all its tasks, [`workers`] starts and notifies the tasks of pods.

mod state;
mod workers;

use std::{fs, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use parking_lot::Mutex;
use reconcile::{RecorderTask, Store};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Endpoint, NodeError, Settings,
    cpus::{self, Cpus},
    devices::Devices,
    disk::{self, Disk},
    endpoint::{self, LogReaders},
    pod::network_record,
    policies::{self, Policies},
    registration,
    services::{self, Services},
    slots::Slots,
    storage::{self, Storage},
    users::Users,
};

pub(crate) use state::{NodeSettings, Shared};
pub use workers::recorded_pods;
use workers::{adopt_unknown, watch_pods};
pub(crate) use workers::{pod_dirs, recorded_object};

/// A kubelet for this host.
pub struct EmbeddedNode {
    shared: Arc<Shared>,
    recorders: [RecorderTask; 2],
    endpoint: Endpoint,
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
        let pods_of_before = pod_dirs(&settings.root);
        let leased = pods_of_before.iter().filter_map(|(uid, dir)| {
            let addresses = network_record(dir)?.addresses;
            let pod = recorded_object(uid, dir);
            Some((uid.clone(), policies::own_address(&pod, &addresses.ips)?))
        });
        let leased = leased.collect();
        let dirs = pods_of_before
            .iter()
            .map(|(uid, dir)| (uid.as_str(), dir.as_path()));
        let devices =
            Devices::open(&settings.root, dirs).map_err(|source| NodeError::Directory {
                dir: settings.root.clone(),
                source,
            })?;
        let cpus = Cpus::open(&settings.root, settings.reserved_cpus.as_deref())?;
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
                volume_refresh: settings.volume_refresh,
            },
            recorder,
            pods: Store::new(),
            node: Store::new(),
            storage: Storage::new(storage_recorder),
            services: Services::new(),
            policies: Policies::new(leased),
            node_changed: watch::Sender::new(()),
            devices,
            cpus,
            slots: Slots::default(),
            disk: Disk::default(),
            log_readers: LogReaders::default(),
            users: Users::default(),
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
            registered = registration::register(
                &shared,
                port,
            ) => registered,
        };
        if let Err(error) = registered {
            stop.cancel();
            shared.devices.close().await;
            tasks.close();
            tasks.wait().await;
            return Err(error);
        }
        tasks.spawn(cpus::run(Arc::clone(&shared), stop.clone()));
        tasks.spawn(disk::run(Arc::clone(&shared), stop.clone()));
        tasks.spawn(registration::renew(Arc::clone(&shared), port, stop.clone()));
        let dns = services::open(&shared).await;
        tasks.spawn(services::run(Arc::clone(&shared), dns, stop.clone()));
        tasks.spawn(policies::run(Arc::clone(&shared), stop.clone()));
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
