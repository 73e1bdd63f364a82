//! The objects that the controllers observe: one store for each kind, kept current by a watch, and
//! the triggers that a change sends to the controllers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::runtime::watcher;
use kube::{Client, Resource};
use kubevirt_api::{VirtualMachine, VirtualMachineInstance, labels};
use reconcile::{Clock, Key, Store, Tracked, Triggers, watch, watch_if_defined};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::node::Heartbeats;
use crate::replica_set;
use crate::view::{
    Claim, DataVolume, Guest, Host, LauncherPod, Namespace, Quota, Quotas, ReplicaSet, Vm, Volumes,
};

const VM: &str = "virtualmachine";
const VMI: &str = "virtualmachineinstance";
const REPLICA_SET: &str = "virtualmachineinstancereplicaset";
const POD: &str = "pod";
const NODE: &str = "node";
const CLAIM: &str = "persistentvolumeclaim";
const DATA_VOLUME: &str = "datavolume";
const QUOTA: &str = "resourcequota";
/// Trigger of all objects when this process becomes the leader.
const LEADER: &str = "leader";

pub(crate) struct Caches {
    pub(crate) vms: Store<Vm>,
    pub(crate) vmis: Store<Guest>,
    pub(crate) pods: Store<LauncherPod>,
    pub(crate) hosts: Store<Host>,
    claims: Store<Claim>,
    data_volumes: Store<DataVolume>,
    pub(crate) namespaces: Store<Namespace>,
    quota_objects: Store<Quota>,
    pub(crate) quotas: Quotas,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) vm_volumes: Volumes,
    pub(crate) vmi_volumes: Volumes,
    pub(crate) triggers: ControllerTriggers,
    clock: Clock,
}

/// The triggers of each controller.
#[derive(Default)]
pub(crate) struct ControllerTriggers {
    pub(crate) vms: Gate,
    pub(crate) vmis: Gate,
    pub(crate) nodes: Gate,
    pub(crate) replica_sets: Gate,
}

/// Triggers that pass only while the controller runs: a process that waits to lead, for months
/// perhaps, would collect the keys of all objects that ever existed.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    pub(crate) triggers: Triggers,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    /// Lets triggers pass, and triggers all objects of the store: the last leader may have stopped
    /// at any point.
    pub(crate) fn open<K: Resource>(&self, store: &Store<K>) {
        self.is_open.store(true, Ordering::Release);
        self.add_all(store.keys(), LEADER);
    }

    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    fn add(&self, key: Key, trigger: &'static str) {
        if self.is_open.load(Ordering::Acquire) {
            self.triggers.add(key, trigger);
        }
    }

    fn add_all(&self, keys: impl IntoIterator<Item = Key>, trigger: &'static str) {
        keys.into_iter().for_each(|key| self.add(key, trigger));
    }
}

/// What every watch needs.
struct Watches<'a> {
    client: &'a Client,
    tasks: &'a TaskTracker,
    stop: &'a CancellationToken,
}

impl Caches {
    pub(crate) fn new(clock: Clock) -> Self {
        let (claims, data_volumes) = (Store::new(), Store::new());
        let quotas = Store::new();
        let volumes = || Volumes {
            claims: Tracked::new(claims.clone()),
            data_volumes: Tracked::new(data_volumes.clone()),
        };
        Self {
            vms: Store::new(),
            vmis: Store::new(),
            pods: Store::new(),
            hosts: Store::new(),
            namespaces: Store::new(),
            quotas: Quotas::new(quotas.clone()),
            quota_objects: quotas,
            replica_sets: Store::new(),
            heartbeats: Heartbeats::default(),
            vm_volumes: volumes(),
            vmi_volumes: volumes(),
            claims,
            data_volumes,
            triggers: ControllerTriggers::default(),
            clock,
        }
    }

    /// Starts all watches.
    pub(crate) fn watch(&self, client: &Client, tasks: &TaskTracker, stop: &CancellationToken) {
        let watches = Watches {
            client,
            tasks,
            stop,
        };
        self.watch_controlled(&watches);
        self.watch_volumes(&watches);
        self.watch_surroundings(&watches);
    }

    /// Waits for the first list of every kind.
    pub(crate) async fn ready(&self) {
        self.vms.ready().await;
        self.vmis.ready().await;
        self.pods.ready().await;
        self.hosts.ready().await;
        self.claims.ready().await;
        self.data_volumes.ready().await;
        self.replica_sets.ready().await;
        self.namespaces.ready().await;
        self.quota_objects.ready().await;
        tracing::info!(
            vms = self.vms.len(),
            vmis = self.vmis.len(),
            pods = self.pods.len(),
            "caches are ready"
        );
    }

    /// The kinds that the controllers write.
    fn watch_controlled(&self, watches: &Watches<'_>) {
        let vms = self.triggers.vms.clone();
        watches.start(all(), &self.vms, move |vm: &Vm| vms.add(Key::of(vm), VM));
        watches.start(all(), &self.vmis, self.on_guest());
        let sets = self.triggers.replica_sets.clone();
        watches.start(all(), &self.replica_sets, move |set: &ReplicaSet| {
            sets.add(Key::of(set), REPLICA_SET);
        });
        let vmis = self.triggers.vmis.clone();
        let selector = format!("{}={}", labels::COMPONENT, labels::COMPONENT_VIRT_LAUNCHER);
        let launchers = all().labels(&selector);
        watches.start(launchers, &self.pods, move |pod: &LauncherPod| {
            if let Some(owner) = Key::of_controller(pod, VirtualMachineInstance::KIND) {
                vmis.add(owner, POD);
            }
        });
    }

    fn watch_volumes(&self, watches: &Watches<'_>) {
        let (vms, vmis) = (self.triggers.vms.clone(), self.triggers.vmis.clone());
        let (of_vms, of_vmis) = (self.vm_volumes.clone(), self.vmi_volumes.clone());
        watches.start(all(), &self.claims, move |claim: &Claim| {
            let key = Key::of(claim);
            vms.add_all(of_vms.claims.changed(&key), CLAIM);
            vmis.add_all(of_vmis.claims.changed(&key), CLAIM);
        });

        let (vms, vmis) = (self.triggers.vms.clone(), self.triggers.vmis.clone());
        let (of_vms, of_vmis) = (self.vm_volumes.clone(), self.vmi_volumes.clone());
        let on_data_volume = move |volume: &DataVolume| {
            let key = Key::of(volume);
            vms.add_all(of_vms.data_volumes.changed(&key), DATA_VOLUME);
            vmis.add_all(of_vmis.data_volumes.changed(&key), DATA_VOLUME);
        };
        watches.tasks.spawn(watch_if_defined(
            watches.client.clone(),
            all(),
            self.data_volumes.clone(),
            on_data_volume,
            watches.stop.clone(),
        ));
    }

    /// The kinds that pods depend on.
    fn watch_surroundings(&self, watches: &Watches<'_>) {
        watches.start(all(), &self.hosts, self.on_host());
        // Read when a pod is created; a change triggers nothing.
        watches.start(all(), &self.namespaces, |_: &Namespace| ());
        let (vmis, quotas) = (self.triggers.vmis.clone(), self.quotas.clone());
        watches.start(all(), &self.quota_objects, move |quota: &Quota| {
            vmis.add_all(quotas.changed(quota), QUOTA);
        });
    }

    fn on_guest(&self) -> impl Fn(&Guest) + use<> {
        let (vms, vmis) = (self.triggers.vms.clone(), self.triggers.vmis.clone());
        let sets = self.triggers.replica_sets.clone();
        let known = self.replica_sets.clone();
        move |vmi| {
            // The VM of that name may want to adopt it.
            vms.add(Key::of(vmi), VMI);
            vmis.add(Key::of(vmi), VMI);
            if let Some(owner) = Key::of_controller(vmi, VirtualMachine::KIND) {
                vms.add(owner, VMI);
            }
            match Key::of_controller(vmi, replica_set::KIND) {
                Some(owner) => sets.add(owner, VMI),
                None => sets.add_all(replica_set::candidates(&known, vmi), VMI),
            }
        }
    }

    fn on_host(&self) -> impl Fn(&Host) + use<> {
        let (nodes, hosts) = (self.triggers.nodes.clone(), self.hosts.clone());
        let (heartbeats, clock) = (self.heartbeats.clone(), self.clock);
        move |host| {
            let key = Key::of(host);
            match hosts.get(&key) {
                Some(host) => heartbeats.note(&host, clock.now()),
                None => heartbeats.forget(&key.name),
            }
            nodes.add(key, NODE);
        }
    }
}

impl Watches<'_> {
    fn start<K>(
        &self,
        config: watcher::Config,
        store: &Store<K>,
        on_change: impl Fn(&K) + Send + 'static,
    ) where
        K: Resource<DynamicType = ()>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug
            + Send
            + Sync
            + 'static,
    {
        let (client, stop) = (self.client.clone(), self.stop.clone());
        self.tasks
            .spawn(watch(client, config, store.clone(), on_change, stop));
    }
}

fn all() -> watcher::Config {
    watcher::Config::default()
}
