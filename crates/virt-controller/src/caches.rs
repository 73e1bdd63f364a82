//! The objects that several controllers observe: one store for each kind, and what a change of an
//! object triggers. A kind that one controller observes is in that controller's folder.

use kube::Resource;
use kubevirt_api::data_source::DataSource;
use kubevirt_api::restore::VirtualMachineRestore;
use kubevirt_api::snapshot::VirtualMachineSnapshot;
use kubevirt_api::storage_profile::StorageProfile;
use kubevirt_api::volume_snapshot::{VolumeSnapshot, VolumeSnapshotClass};
use reconcile::{Key, Store, Tracked};

use crate::gate::Gate;
use crate::node::Heartbeats;
use crate::view::{
    Claim, DataVolume, Guest, Host, ImporterDefinition, SnapshotClasses, StorageClass, Volumes,
};
use crate::vm::Vm;
use crate::vmi::LauncherPod;

/// Trigger by a VM.
pub(crate) const VM: &str = "virtualmachine";
/// Trigger by a VMI.
pub(crate) const VMI: &str = "virtualmachineinstance";
const CLAIM: &str = "persistentvolumeclaim";
pub(crate) const DATA_VOLUME: &str = "datavolume";
const STORAGE_CLASS: &str = "storageclass";
const STORAGE_PROFILE: &str = "storageprofile";
const SNAPSHOT_CLASS: &str = "volumesnapshotclass";

#[derive(Default)]
pub(crate) struct Caches {
    pub(crate) vms: Shared<Vm>,
    pub(crate) guests: Shared<Guest>,
    pub(crate) hosts: Shared<Host>,
    pub(crate) pods: Shared<LauncherPod>,
    pub(crate) claims: Shared<Claim>,
    pub(crate) data_volumes: Shared<DataVolume>,
    pub(crate) data_sources: Shared<DataSource>,
    /// The definition of data volumes, while it is ours.
    pub(crate) importer: Shared<ImporterDefinition>,
    pub(crate) storage_classes: Shared<StorageClass>,
    pub(crate) storage_profiles: Shared<StorageProfile>,
    pub(crate) snapshot_classes: Shared<VolumeSnapshotClass>,
    pub(crate) volume_snapshots: Shared<VolumeSnapshot>,
    pub(crate) snapshots: Shared<VirtualMachineSnapshot>,
    pub(crate) restores: Shared<VirtualMachineRestore>,
    pub(crate) heartbeats: Heartbeats,
}

/// A store that several controllers read.
pub(crate) struct Shared<K> {
    store: Store<K>,
    handlers: Vec<Handler<K>>,
}

type Handler<K> = Box<dyn Fn(&K) + Send + Sync>;

impl Caches {
    /// The claims and data volumes that a controller observes; a change triggers it.
    pub(crate) fn volumes(&mut self, gate: &Gate) -> Volumes {
        let volumes = Volumes {
            claims: Tracked::new(self.claims.store()),
            data_volumes: Tracked::new(self.data_volumes.store()),
        };
        let (tracked, queue) = (volumes.claims.clone(), gate.clone());
        self.claims.on_change(move |claim| {
            queue.add_all(tracked.changed(&Key::of(claim)), CLAIM);
        });
        let (tracked, queue) = (volumes.data_volumes.clone(), gate.clone());
        self.data_volumes.on_change(move |volume| {
            queue.add_all(tracked.changed(&Key::of(volume)), DATA_VOLUME);
        });
        volumes
    }
}

impl Caches {
    /// The classes that decide which claims can be copied; a change triggers all objects of the store.
    pub(crate) fn snapshot_classes<K>(&mut self, gate: &Gate, store: &Store<K>) -> SnapshotClasses
    where
        K: Resource + Send + Sync + 'static,
    {
        let (queue, all) = (gate.clone(), store.clone());
        self.storage_classes
            .on_change(move |_| queue.add_all(all.keys(), STORAGE_CLASS));
        let (queue, all) = (gate.clone(), store.clone());
        self.storage_profiles
            .on_change(move |_| queue.add_all(all.keys(), STORAGE_PROFILE));
        let (queue, all) = (gate.clone(), store.clone());
        self.snapshot_classes
            .on_change(move |_| queue.add_all(all.keys(), SNAPSHOT_CLASS));
        SnapshotClasses {
            storage: self.storage_classes.store(),
            profiles: self.storage_profiles.store(),
            snapshot: self.snapshot_classes.store(),
        }
    }
}

impl<K> Shared<K> {
    pub(crate) fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Calls `handler` with each object that was added, modified or deleted.
    pub(crate) fn on_change(&mut self, handler: impl Fn(&K) + Send + Sync + 'static) {
        self.handlers.push(Box::new(handler));
    }

    /// The store, and all handlers as one.
    pub(crate) fn into_parts(self) -> (Store<K>, impl Fn(&K) + Send + Sync + use<K>) {
        let handlers = self.handlers;
        let on_change = move |object: &K| handlers.iter().for_each(|handler| handler(object));
        (self.store, on_change)
    }
}

impl<K: Resource> Default for Shared<K> {
    fn default() -> Self {
        Self {
            store: Store::new(),
            handlers: Vec::new(),
        }
    }
}
