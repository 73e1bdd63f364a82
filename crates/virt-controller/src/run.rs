//! Settings, and the list of controllers: fills the caches, waits to lead, and runs the controllers
//! while leading.

use std::sync::Arc;

use cluster_view::Configuration;
use kube::Client;
use reconcile::{Clock, Leadership, lead, recorder};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::wiring::Wiring;
use crate::{
    ExportPlace, backup, clone, data_source, data_volume, export, hotplug, migration, node, pool,
    replica_set, restore, snapshot, storage_profile, template, template_request, vm, vmi,
};

const COMPONENT: &str = "virt-controller";

/// All controllers.
const REGISTER: [fn(&mut Wiring<'_>); 17] = [
    vm::register,
    vmi::register,
    node::register,
    replica_set::register,
    pool::register,
    migration::register,
    data_volume::register,
    data_source::register,
    storage_profile::register,
    hotplug::register,
    snapshot::register,
    restore::register,
    clone::register,
    export::register,
    backup::register,
    template::register,
    template_request::register,
];

/// The settings of all controllers.
#[derive(Clone)]
pub struct Settings {
    pub client: Client,
    /// How pods are rendered; the acceleration in it is replaced by the policy's choice.
    pub launcher: launcher_pod::Settings,
    pub acceleration: AccelerationPolicy,
    pub uploads: Uploads,
    pub copies: CopyRights,
    /// Where clients that are not in a pod download exports, if there is such a place.
    pub exports: Option<ExportPlace>,
    pub clock: Clock,
    /// The administrator's configuration; [`run`] keeps it current.
    pub cluster: Configuration,
    /// How many objects of one kind are reconciled concurrently.
    pub concurrency: usize,
    /// Only the leader reconciles; the other processes keep their caches current and wait. The
    /// lease is in the namespace of the installation.
    pub leadership: Leadership,
}

/// How guests are accelerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccelerationPolicy {
    Kvm,
    Emulation,
    /// KVM when any node offers the device, else software emulation.
    ByNodes,
}

/// Whether there is a proxy through which clients send disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploads {
    Received,
    /// Data volumes with the source `upload` are refused.
    Refused,
}

/// Whose rights decide whether a data volume may copy from another namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyRights {
    /// Those of its creator: virt-api reviews every data volume and records in an annotation what may be copied.
    Reviewed,
    /// Those of the service account `default` of its namespace. The annotation means nothing.
    OfNamespace,
}

/// Runs the controllers until stopped.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    let (recorder, recording) = recorder(settings.client.clone(), COMPONENT, settings.clock);
    tasks.spawn(recording.run(stop.clone()));
    let (client, clock) = (settings.client.clone(), settings.clock);
    let leadership = settings.leadership.clone();
    let concurrency = settings.concurrency;
    let cluster = settings.cluster.clone();
    cluster.follow(&client, &tasks, &stop);
    let configuration = cluster.clone();
    let mut wiring = Wiring::new(&settings, recorder, cluster, &tasks, &stop);
    for register in REGISTER {
        register(&mut wiring);
    }
    let controllers = Arc::new(wiring.finish());
    // The caches fill while the lease is fetched, and stay warm while another process leads.
    let work = move |token: CancellationToken| {
        let (controllers, configuration) = (Arc::clone(&controllers), configuration.clone());
        async move {
            let ready = async {
                controllers.ready().await;
                // Its limits would not count, and guests would follow what they are not to.
                configuration.ready().await;
            };
            if token.run_until_cancelled(ready).await.is_some() {
                controllers.run(concurrency, token).await;
            }
        }
    };
    lead(client, leadership, clock, stop.clone(), work).await;
    tasks.close();
    tasks.wait().await;
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("launcher", &self.launcher)
            .field("acceleration", &self.acceleration)
            .field("leadership", &self.leadership)
            .finish_non_exhaustive()
    }
}
