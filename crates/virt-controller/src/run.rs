//! Watches and wiring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster_config::ClusterConfig;
use cluster_view::Configuration;
use kube::runtime::watcher;
use kube::{Client, Resource};
use kubevirt_api::{VirtualMachine, VirtualMachineInstance, labels};
use reconcile::{
    Clock, Election, Key, Reconciler, Recorder, Store, Tracked, Triggers, lead, recorder,
    run_controller, watch, watch_if_defined,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::node::{self, Heartbeats};
use crate::view::{
    Claim, DataVolume, Guest, Host, LauncherPod, Namespace, Quota, Quotas, ReplicaSet, Vm, Volumes,
};
use crate::{replica_set, vm, vmi};

const COMPONENT: &str = "virt-controller";

/// What the controllers are run with.
#[derive(Clone)]
pub struct Settings {
    pub client: Client,
    /// How pods are made; its acceleration is replaced by what the policy finds.
    pub launcher: launcher_pod::Settings,
    pub acceleration: AccelerationPolicy,
    pub clock: Clock,
    /// Objects of one kind that are worked on at once.
    pub concurrency: usize,
    /// Only one of many does the work; the others keep their caches current and wait. The lease is
    /// in the namespace of the installation, as the administrator's configuration is.
    pub election: Election,
}

/// How it is decided whether guests run by KVM or by software.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccelerationPolicy {
    Kvm,
    Emulation,
    /// KVM when any node offers the device, else software.
    ByNodes,
}

/// Runs the controllers until stopped.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    let (recorder, recording) = recorder(settings.client.clone(), COMPONENT, settings.clock);
    tasks.spawn(recording.run(stop.clone()));
    let (client, clock) = (settings.client.clone(), settings.clock);
    let election = settings.election.clone();
    let wired = Arc::new(Wired::new(settings, recorder));
    wired.watch(&tasks, &stop);
    // The caches fill while the lease is fetched, and stay warm while another leads.
    let work = move |token: CancellationToken| {
        let wired = Arc::clone(&wired);
        async move {
            if token.run_until_cancelled(wired.ready()).await.is_some() {
                wired.control(token).await;
            }
        }
    };
    lead(client, election, clock, stop.clone(), work).await;
    tasks.close();
    tasks.wait().await;
}

/// What the controllers share.
struct Wired {
    settings: Settings,
    recorder: Recorder,
    cluster: Configuration,
    vms: Store<Vm>,
    vmis: Store<Guest>,
    pods: Store<LauncherPod>,
    hosts: Store<Host>,
    claims: Store<Claim>,
    data_volumes: Store<DataVolume>,
    namespaces: Store<Namespace>,
    quota_objects: Store<Quota>,
    quotas: Quotas,
    replica_sets: Store<ReplicaSet>,
    heartbeats: Heartbeats,
    vm_volumes: Volumes,
    vmi_volumes: Volumes,
    wake: Wake,
}

/// Who needs a look, by kind.
#[derive(Default)]
struct Wake {
    vms: Gate,
    vmis: Gate,
    nodes: Gate,
    replica_sets: Gate,
}

/// Triggers that count only while somebody looks: who waits to lead, for months perhaps, would
/// collect the names of all that ever was.
#[derive(Clone, Default)]
struct Gate {
    triggers: Triggers,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    fn add(&self, key: Key) {
        if self.is_open.load(Ordering::Acquire) {
            self.triggers.add(key);
        }
    }

    fn add_all(&self, keys: impl IntoIterator<Item = Key>) {
        keys.into_iter().for_each(|key| self.add(key));
    }
}

impl Wired {
    fn new(settings: Settings, recorder: Recorder) -> Self {
        let (claims, data_volumes) = (Store::new(), Store::new());
        let quotas = Store::new();
        let volumes = || Volumes {
            claims: Tracked::new(claims.clone()),
            data_volumes: Tracked::new(data_volumes.clone()),
        };
        let namespace = settings.election.namespace.clone();
        Self {
            cluster: Configuration::new(ClusterConfig::default(), namespace),
            settings,
            recorder,
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
            wake: Wake::default(),
        }
    }

    fn watch(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        self.cluster.follow(&self.settings.client, tasks, stop);
        let client = || self.settings.client.clone();
        let all = watcher::Config::default;

        let vms = self.wake.vms.clone();
        let wake = move |vm: &Vm| vms.add(Key::of(vm));
        tasks.spawn(watch(client(), all(), self.vms.clone(), wake, stop.clone()));

        let store = self.vmis.clone();
        let wake = self.wake_for_guests();
        tasks.spawn(watch(client(), all(), store, wake, stop.clone()));

        let sets = self.wake.replica_sets.clone();
        let wake = move |set: &ReplicaSet| sets.add(Key::of(set));
        let store = self.replica_sets.clone();
        tasks.spawn(watch(client(), all(), store, wake, stop.clone()));

        let vmis = self.wake.vmis.clone();
        let wake = move |pod: &LauncherPod| {
            if let Some(owner) = Key::of_controller(pod, VirtualMachineInstance::KIND) {
                vmis.add(owner);
            }
        };
        let selector = format!("{}={}", labels::COMPONENT, labels::COMPONENT_VIRT_LAUNCHER);
        let launchers = all().labels(&selector);
        let store = self.pods.clone();
        tasks.spawn(watch(client(), launchers, store, wake, stop.clone()));

        let wake = self.wake_for_hosts();
        let store = self.hosts.clone();
        tasks.spawn(watch(client(), all(), store, wake, stop.clone()));

        self.watch_volumes(tasks, stop);
        self.watch_namespaces(tasks, stop);
    }

    fn watch_volumes(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let client = || self.settings.client.clone();
        let all = watcher::Config::default;

        let (vms, vmis) = (self.wake.vms.clone(), self.wake.vmis.clone());
        let (by_vms, by_vmis) = (self.vm_volumes.clone(), self.vmi_volumes.clone());
        let wake = move |claim: &Claim| {
            let key = Key::of(claim);
            vms.add_all(by_vms.claims.changed(&key));
            vmis.add_all(by_vmis.claims.changed(&key));
        };
        let store = self.claims.clone();
        tasks.spawn(watch(client(), all(), store, wake, stop.clone()));

        let (vms, vmis) = (self.wake.vms.clone(), self.wake.vmis.clone());
        let (by_vms, by_vmis) = (self.vm_volumes.clone(), self.vmi_volumes.clone());
        let wake = move |volume: &DataVolume| {
            let key = Key::of(volume);
            vms.add_all(by_vms.data_volumes.changed(&key));
            vmis.add_all(by_vmis.data_volumes.changed(&key));
        };
        let store = self.data_volumes.clone();
        tasks.spawn(watch_if_defined(client(), all(), store, wake, stop.clone()));
    }

    fn watch_namespaces(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let client = || self.settings.client.clone();
        let all = watcher::Config::default;
        // Looked at when a pod is made, and no pod is made because of it.
        let store = self.namespaces.clone();
        tasks.spawn(watch(client(), all(), store, |_| (), stop.clone()));

        let (vmis, quotas) = (self.wake.vmis.clone(), self.quotas.clone());
        let wake = move |quota: &Quota| vmis.add_all(quotas.changed(quota));
        let store = self.quota_objects.clone();
        tasks.spawn(watch(client(), all(), store, wake, stop.clone()));
    }

    fn wake_for_guests(&self) -> impl Fn(&Guest) + use<> {
        let (vms, vmis) = (self.wake.vms.clone(), self.wake.vmis.clone());
        let (sets, known) = (self.wake.replica_sets.clone(), self.replica_sets.clone());
        move |vmi| {
            // The VM of that name may want to adopt it.
            vms.add(Key::of(vmi));
            vmis.add(Key::of(vmi));
            if let Some(owner) = Key::of_controller(vmi, VirtualMachine::KIND) {
                vms.add(owner);
            }
            match Key::of_controller(vmi, replica_set::KIND) {
                Some(owner) => sets.add(owner),
                None => replica_set::suitors(&known, vmi)
                    .into_iter()
                    .for_each(|set| sets.add(set)),
            }
        }
    }

    fn wake_for_hosts(&self) -> impl Fn(&Host) + use<> {
        let (nodes, hosts) = (self.wake.nodes.clone(), self.hosts.clone());
        let (heartbeats, clock) = (self.heartbeats.clone(), self.settings.clock);
        move |host| {
            let key = Key::of(host);
            match hosts.get(&key) {
                Some(host) => heartbeats.note(&host, clock.now()),
                None => heartbeats.forget(&key.name),
            }
            nodes.add(key);
        }
    }

    async fn ready(&self) {
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
            "controllers start"
        );
    }

    /// Does the work, until stopped.
    async fn control(&self, stop: CancellationToken) {
        let settings = &self.settings;
        let (client, clock) = (settings.client.clone(), settings.clock);
        let tasks = TaskTracker::new();
        let vms = vm::Controller {
            cluster: self.cluster.clone(),
            client: client.clone(),
            vms: self.vms.clone(),
            vmis: self.vmis.clone(),
            volumes: self.vm_volumes.clone(),
            recorder: self.recorder.clone(),
            clock,
        };
        self.spawn((&tasks, &stop), vms, &self.wake.vms, &self.vms);
        let vmis = vmi::Controller {
            client: client.clone(),
            vmis: self.vmis.clone(),
            pods: self.pods.clone(),
            hosts: self.hosts.clone(),
            heartbeats: self.heartbeats.clone(),
            volumes: self.vmi_volumes.clone(),
            launcher: settings.launcher.clone(),
            cluster: self.cluster.clone(),
            namespaces: self.namespaces.clone(),
            quotas: self.quotas.clone(),
            acceleration: settings.acceleration,
            recorder: self.recorder.clone(),
            clock,
        };
        self.spawn((&tasks, &stop), vmis, &self.wake.vmis, &self.vmis);
        let nodes = node::Controller {
            client: client.clone(),
            hosts: self.hosts.clone(),
            heartbeats: self.heartbeats.clone(),
            vmis: self.vmis.clone(),
            vmi_triggers: self.wake.vmis.triggers.clone(),
            clock,
        };
        self.spawn((&tasks, &stop), nodes, &self.wake.nodes, &self.hosts);
        let sets = replica_set::Controller::new(
            client,
            self.replica_sets.clone(),
            self.vmis.clone(),
            self.recorder.clone(),
            clock,
        );
        let (wake, store) = (&self.wake.replica_sets, &self.replica_sets);
        self.spawn((&tasks, &stop), sets, wake, store);
        tasks.close();
        tasks.wait().await;
    }

    /// Runs a controller. Whoever led before may have left anything behind, so everything gets a
    /// look.
    fn spawn<R: Reconciler, K: Resource>(
        &self,
        (tasks, stop): (&TaskTracker, &CancellationToken),
        reconciler: R,
        gate: &Gate,
        store: &Store<K>,
    ) {
        let concurrency = self.settings.concurrency.max(1);
        let (gate, stop) = (gate.clone(), stop.clone());
        gate.is_open.store(true, Ordering::Release);
        gate.add_all(store.keys());
        tasks.spawn(async move {
            let triggers = gate.triggers.clone();
            run_controller(Arc::new(reconciler), triggers, concurrency, stop).await;
            gate.is_open.store(false, Ordering::Release);
        });
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("launcher", &self.launcher)
            .field("acceleration", &self.acceleration)
            .field("election", &self.election)
            .finish_non_exhaustive()
    }
}
