//! Settings and wiring: fills the caches, waits to lead, and runs the controllers while leading.

use std::sync::Arc;

use cluster_config::ClusterConfig;
use cluster_view::Configuration;
use kube::{Client, Resource};
use reconcile::{Clock, Election, Reconciler, Recorder, Store, lead, recorder, run_controller};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caches::{Caches, Gate};
use crate::{node, replica_set, vm, vmi};

const COMPONENT: &str = "virt-controller";

/// The settings of all controllers.
#[derive(Clone)]
pub struct Settings {
    pub client: Client,
    /// How pods are rendered; the acceleration in it is replaced by the policy's choice.
    pub launcher: launcher_pod::Settings,
    pub acceleration: AccelerationPolicy,
    pub clock: Clock,
    /// How many objects of one kind are reconciled concurrently.
    pub concurrency: usize,
    /// Only the leader reconciles; the other processes keep their caches current and wait. The
    /// lease is in the namespace of the installation, like the administrator's configuration.
    pub election: Election,
}

/// How guests are accelerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccelerationPolicy {
    Kvm,
    Emulation,
    /// KVM when any node offers the device, else software emulation.
    ByNodes,
}

/// Runs the controllers until stopped.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    let (recorder, recording) = recorder(settings.client.clone(), COMPONENT, settings.clock);
    tasks.spawn(recording.run(stop.clone()));
    let (client, clock) = (settings.client.clone(), settings.clock);
    let election = settings.election.clone();
    let namespace = election.namespace.clone();
    let controllers = Arc::new(Controllers {
        cluster: Configuration::new(ClusterConfig::default(), namespace),
        caches: Caches::new(clock),
        settings,
        recorder,
    });
    controllers.cluster.follow(&client, &tasks, &stop);
    controllers.caches.watch(&client, &tasks, &stop);
    // The caches fill while the lease is fetched, and stay warm while another process leads.
    let work = move |token: CancellationToken| {
        let controllers = Arc::clone(&controllers);
        async move {
            let ready = token.run_until_cancelled(controllers.caches.ready());
            if ready.await.is_some() {
                controllers.run(token).await;
            }
        }
    };
    lead(client, election, clock, stop.clone(), work).await;
    tasks.close();
    tasks.wait().await;
}

struct Controllers {
    settings: Settings,
    recorder: Recorder,
    cluster: Configuration,
    caches: Caches,
}

/// Where controllers run.
struct Workers {
    tasks: TaskTracker,
    concurrency: usize,
    stop: CancellationToken,
}

impl Controllers {
    /// Reconciles until stopped.
    async fn run(&self, stop: CancellationToken) {
        let (caches, triggers) = (&self.caches, &self.caches.triggers);
        let workers = Workers {
            tasks: TaskTracker::new(),
            concurrency: self.settings.concurrency.max(1),
            stop,
        };
        workers.start(self.vm(), &triggers.vms, &caches.vms);
        workers.start(self.vmi(), &triggers.vmis, &caches.vmis);
        workers.start(self.node(), &triggers.nodes, &caches.hosts);
        let sets = self.replica_set();
        workers.start(sets, &triggers.replica_sets, &caches.replica_sets);
        workers.tasks.close();
        workers.tasks.wait().await;
    }

    fn vm(&self) -> vm::Controller {
        vm::Controller {
            cluster: self.cluster.clone(),
            client: self.settings.client.clone(),
            vms: self.caches.vms.clone(),
            vmis: self.caches.vmis.clone(),
            volumes: self.caches.vm_volumes.clone(),
            recorder: self.recorder.clone(),
            clock: self.settings.clock,
        }
    }

    fn vmi(&self) -> vmi::Controller {
        vmi::Controller {
            client: self.settings.client.clone(),
            vmis: self.caches.vmis.clone(),
            pods: self.caches.pods.clone(),
            hosts: self.caches.hosts.clone(),
            heartbeats: self.caches.heartbeats.clone(),
            volumes: self.caches.vmi_volumes.clone(),
            launcher: self.settings.launcher.clone(),
            cluster: self.cluster.clone(),
            namespaces: self.caches.namespaces.clone(),
            quotas: self.caches.quotas.clone(),
            acceleration: self.settings.acceleration,
            recorder: self.recorder.clone(),
            clock: self.settings.clock,
        }
    }

    fn node(&self) -> node::Controller {
        node::Controller {
            client: self.settings.client.clone(),
            hosts: self.caches.hosts.clone(),
            heartbeats: self.caches.heartbeats.clone(),
            vmis: self.caches.vmis.clone(),
            vmi_triggers: self.caches.triggers.vmis.triggers.clone(),
            clock: self.settings.clock,
        }
    }

    fn replica_set(&self) -> replica_set::Controller {
        replica_set::Controller::new(
            self.settings.client.clone(),
            self.caches.replica_sets.clone(),
            self.caches.vmis.clone(),
            self.recorder.clone(),
            self.settings.clock,
        )
    }
}

impl Workers {
    fn start<R: Reconciler, K: Resource>(&self, reconciler: R, gate: &Gate, store: &Store<K>) {
        let (gate, stop, concurrency) = (gate.clone(), self.stop.clone(), self.concurrency);
        gate.open(store);
        self.tasks.spawn(async move {
            let triggers = gate.triggers.clone();
            run_controller(Arc::new(reconciler), triggers, concurrency, stop).await;
            gate.close();
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
