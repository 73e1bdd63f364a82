//! Devices of this node that a guest drives itself, as the administrator permits them in
//! `permittedHostDevices`: PCI devices that are bound to `vfio-pci`, mediated devices, USB devices. And the
//! helper for persistent reservations, if the administrator permits these.
//!
//! Each permitted resource has a plugin. The devices of all resources are searched in sysfs at the
//! start, at intervals, and when a node in `/dev/vfio` appears or vanishes. A device that vanished, or that
//! got another driver, is unhealthy; before an allocation the devices are searched again.
//!
//! **Invariants**: no resource that the configuration does not name is offered, and no device that it does not
//! select: a group of devices that only share an IOMMU group with a permitted one is not offered at all. No
//! device is in two resources. Resources of other device plugins (`externalResourceProvider`) are left to
//! them.

mod allocation;
mod discovery;
mod mediated;
mod pci;
mod reservations;
mod selection;
#[cfg(test)]
mod tests;
mod usb;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cluster_config::{ClusterConfig, Permission};
use cluster_view::Configuration;
use device_plugin::{Device, Devices, HEALTHY, NumaNode, TopologyInfo, UNHEALTHY};
use futures::future::join_all;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) use self::selection::with_underscores;
use self::{
    allocation::Allocations,
    discovery::{Found, Unit},
    selection::Permitted,
    usb::KnownUnits,
};
use super::{directory_watch::Changes, plugin::OnePlugin};

/// How often devices are searched: the kernel announces changes of drivers only to the host.
const INTERVAL: Duration = Duration::from_secs(30);
/// The most devices of a resource, with those that vanished.
const MAX_DEVICES: usize = 1000;

/// Where the kernel describes its devices, where their nodes are, and the sockets of the host's programs.
#[derive(Debug, Clone)]
pub struct DeviceFiles {
    pub sys: PathBuf,
    pub dev: PathBuf,
    pub run: PathBuf,
}

impl DeviceFiles {
    /// Those of this host.
    pub fn of_host() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
            run: "/run".into(),
        }
    }

    /// Those of the host of a privileged pod with the host's processes: the pod's own `/dev` has only the
    /// devices of the time when it was made.
    pub fn of_host_of_pod() -> Self {
        Self {
            dev: "/proc/1/root/dev".into(),
            run: "/proc/1/root/run".into(),
            ..Self::of_host()
        }
    }
}

/// Offers the permitted devices to the kubelet.
#[derive(Debug)]
pub struct PermittedDevices {
    /// The kubelet's directory of plugins.
    pub dir: PathBuf,
    pub files: DeviceFiles,
    pub configuration: Configuration,
}

impl PermittedDevices {
    /// Offers the devices that the configuration permits, also after it changes, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.configuration.ready() => {}
        }
        let plugins = Plugins {
            dir: &self.dir,
            files: &self.files,
            known: KnownUnits::default(),
        };
        let changes = self.configuration.changes();
        plugins.follow(changes, stop).await;
    }
}

struct Plugins<'a> {
    dir: &'a Path,
    files: &'a DeviceFiles,
    known: KnownUnits,
}

impl Plugins<'_> {
    async fn follow(
        &self,
        mut configuration: watch::Receiver<Arc<ClusterConfig>>,
        stop: CancellationToken,
    ) {
        loop {
            let (selected, may_reserve) = {
                let current = configuration.borrow_and_update();
                let selected = selection::of(&current.written);
                (selected, current.persistent_reservation)
            };
            for problem in &selected.problems {
                tracing::warn!(%problem, "permitted device is not offered");
            }
            let permitted: Arc<[Permitted]> = selected.permitted.into();
            let offering = offer(self.dir, self.files, &permitted, &self.known, stop.clone());
            tokio::select! {
                () = stop.cancelled() => return,
                () = offering => return,
                () = self.reservations(may_reserve, stop.clone()) => return,
                () = other_selection(&mut configuration, &permitted, may_reserve) => {}
            }
        }
    }

    async fn reservations(&self, may_reserve: Permission, stop: CancellationToken) {
        match may_reserve {
            Permission::Allowed => {
                let (dir, run) = (self.dir.to_owned(), self.files.run.clone());
                reservations::offer(dir, run, stop).await;
            }
            Permission::Refused => stop.cancelled().await,
        }
    }
}

/// Waits until the configuration permits something else.
async fn other_selection(
    configuration: &mut watch::Receiver<Arc<ClusterConfig>>,
    permitted: &[Permitted],
    may_reserve: Permission,
) {
    loop {
        if configuration.changed().await.is_err() {
            // The sender was dropped: the configuration no longer changes.
            std::future::pending::<()>().await;
        }
        let current = configuration.borrow_and_update();
        let next = selection::of(&current.written);
        if next.permitted != permitted || current.persistent_reservation != may_reserve {
            return;
        }
    }
}

/// Offers these resources until `stop`.
async fn offer(
    dir: &Path,
    files: &DeviceFiles,
    permitted: &Arc<[Permitted]>,
    known: &KnownUnits,
    stop: CancellationToken,
) {
    if permitted.is_empty() {
        return stop.cancelled().await;
    }
    let none: Devices = Vec::new().into();
    let lists: BTreeMap<&str, watch::Sender<Devices>> = permitted
        .iter()
        .map(|one| (one.resource.as_str(), watch::Sender::new(Arc::clone(&none))))
        .collect();
    let mut search = Search {
        files,
        permitted,
        known,
        lists: &lists,
        reported: Vec::new(),
    };
    // A kubelet that starts together with its pods checks their devices against the first list.
    search.once().await;
    let plugins = lists.iter().map(|(resource, list)| {
        let allocations = Allocations {
            files: files.clone(),
            permitted: Arc::clone(permitted),
            resource: (*resource).to_owned(),
            known: known.clone(),
        };
        let (resource, endpoint) = ((*resource).to_owned(), endpoint(resource));
        OnePlugin::new(
            dir.to_owned(),
            resource,
            endpoint,
            allocations,
            list.subscribe(),
        )
        .run(stop.clone())
    });
    tokio::select! {
        () = search.repeat() => {}
        _ended = join_all(plugins) => {}
    }
}

/// Names of resources may be longer than those of sockets.
fn endpoint(resource: &str) -> String {
    let hash = hex::encode(Sha256::digest(resource.as_bytes()));
    let digits: String = hash.chars().take(20).collect();
    format!("kubevirt-host-{digits}.sock")
}

/// The search for devices, and the lists that it keeps up to date.
struct Search<'a> {
    files: &'a DeviceFiles,
    permitted: &'a Arc<[Permitted]>,
    known: &'a KnownUnits,
    lists: &'a BTreeMap<&'a str, watch::Sender<Devices>>,
    /// Problems in the log already.
    reported: Vec<String>,
}

impl Search<'_> {
    async fn repeat(&mut self) {
        loop {
            let changes = Changes::around(&self.files.dev.join("vfio/vfio"));
            self.once().await;
            let changed = async {
                let is_watched = match changes {
                    Ok(mut changes) => changes.next().await.is_ok(),
                    Err(_) => false,
                };
                if !is_watched {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    async fn once(&mut self) {
        match discovery::search(self.files, self.permitted, self.known).await {
            Ok(found) => {
                if found.problems != self.reported {
                    for problem in &found.problems {
                        tracing::warn!(%problem, "device of this node is not offered");
                    }
                    self.reported.clone_from(&found.problems);
                }
                publish(&found, self.lists);
            }
            Err(error) => tracing::warn!(%error, "cannot search for devices of this node"),
        }
    }
}

fn publish(found: &Found, lists: &BTreeMap<&str, watch::Sender<Devices>>) {
    for (resource, list) in lists {
        let units = found.units.get(*resource).map_or(&[][..], Vec::as_slice);
        list.send_if_modified(|before| {
            let after = devices(units, before);
            let is_changed = *before != after;
            if is_changed {
                tracing::info!(
                    resource,
                    devices = units.len(),
                    "devices of this node changed"
                );
                *before = after;
            }
            is_changed
        });
    }
}

/// The present devices, and as unhealthy ones those that vanished.
fn devices(units: &[Unit], before: &Devices) -> Devices {
    let present = units.iter().map(|unit| Device {
        id: unit.id.clone(),
        health: HEALTHY.to_owned(),
        topology: unit.numa.map(|id| TopologyInfo {
            nodes: vec![NumaNode { id: id.into() }],
        }),
    });
    let vanished = before
        .iter()
        .filter(|device| units.iter().all(|unit| unit.id != device.id));
    let vanished = vanished.map(|device| Device {
        health: UNHEALTHY.to_owned(),
        ..device.clone()
    });
    present.chain(vanished).take(MAX_DEVICES).collect()
}
