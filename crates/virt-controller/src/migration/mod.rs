//! Migrations: a running guest moves to a new pod on another node.
//!
//! This controller creates the pod, publishes the migration on the VMI and follows what the
//! virt-handlers of the two nodes report there. The VMI controller moves the VMI to its new node.
//!
//! - `plan` derives phase and `steps` from the observed objects;
//! - `limits` decides whose turn it is among the migrations that wait;
//! - `attachment` brings volumes along that were attached while the guest runs;
//! - `policy` chooses the settings of a migration;
//! - `figures` are the metrics;
//! - `decentralized` moves guests between two VMIs, such as those of two namespaces;
//! - `automatic` creates migrations that no user asked for: `evacuation` for guests that have to leave their
//!   node, `workload_update` for guests whose pod has an outdated launcher.
//!
//! **Invariants**: a guest has one migration at a time; a deleted migration always goes: a running one is
//! cancelled, any other ends at once; a pod that may have the guest is never deleted here.

mod act;
mod attachment;
mod automatic;
mod decentralized;
mod evacuation;
mod figures;
mod limits;
mod observe;
mod plan;
mod policy;
mod status;
mod steps;
mod target;
#[cfg(test)]
mod tests;
mod view;
mod workload_update;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::migration_policy::MigrationPolicy;
use launcher_pod::PodError;
use parking_lot::Mutex;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use self::figures::Figures;
use self::observe::Begun;
use self::view::Migration;
use crate::gate::Gate;
use crate::view::Guest;
use crate::vmi::{LauncherPod, PodSource};
use crate::wiring::Wiring;

/// Trigger by a migration.
const MIGRATION: &str = "virtualmachineinstancemigration";
const VMI: &str = "virtualmachineinstance";
const POD: &str = "pod";
const CONFIGURATION: &str = "configuration";

#[derive(Clone)]
struct Controller {
    client: Client,
    migrations: Store<Migration>,
    policies: Store<MigrationPolicy>,
    vmis: Store<Guest>,
    pods: Store<LauncherPod>,
    source: PodSource,
    recorder: Recorder,
    clock: Clock,
    /// Migrations whose turn has come while the cache still shows them waiting, by UID.
    begun: Arc<Mutex<BTreeMap<String, Begun>>>,
    /// Ends the metrics with this controller.
    _figures: Arc<Figures>,
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum MigrationError {
    #[error("read {what}")]
    Read {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("render the pod")]
    Render(#[source] PodError),
    #[error("create the pod")]
    Create(#[source] WriteError),
    #[error("create the migration")]
    Request(#[source] WriteError),
    #[error("delete the pod")]
    Delete(#[source] WriteError),
    #[error("delete the finished migration")]
    CleanUp(#[source] WriteError),
    #[error("change the finalizers")]
    Finalizer(#[source] WriteError),
    #[error("write the migration to the VMI")]
    Publish(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
    #[error("write the number of guests with an outdated launcher")]
    Count(#[source] WriteError),
}

impl ReconcileError for MigrationError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read { .. } => Reason::ServerUnavailable,
            Self::Render(_) | Self::Create(_) | Self::Request(_) => Reason::FailedCreate,
            Self::Delete(_) | Self::CleanUp(_) => Reason::FailedDelete,
            Self::Finalizer(_) | Self::Publish(_) => Reason::FailedUpdate,
            Self::Status(_) | Self::Count(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read { .. } | Self::Render(_) => Retry::BackOff,
            Self::Create(source)
            | Self::Request(source)
            | Self::Delete(source)
            | Self::CleanUp(source)
            | Self::Finalizer(source)
            | Self::Publish(source)
            | Self::Status(source)
            | Self::Count(source) => source.retry(),
        }
    }
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    // The VMI controller is registered before this one.
    let Some(source) = wiring.pod_source.clone() else {
        return;
    };
    let gate = Gate::default();
    let migrations: Store<Migration> = Store::new();
    let (queue, all) = (gate.clone(), migrations.clone());
    let on_change = move |migration: &Migration| {
        let key = Key::of(migration);
        let others = all.in_namespace(&key.namespace).into_iter();
        let of_guest = others.filter(|one| one.guest() == migration.guest());
        queue.add_all(of_guest.map(|one| Key::of(one.as_ref())), MIGRATION);
        if migration.end().is_some() {
            let list = all.list();
            let peers = decentralized::peers(&list, migration);
            queue.add_all(peers.map(|one| Key::of(one.as_ref())), MIGRATION);
        }
        queue.add(key, MIGRATION);
    };
    wiring.watch_if_defined(watcher::Config::default(), &migrations, on_change);
    let policies: Store<MigrationPolicy> = Store::new();
    // Read when a migration begins; a change triggers nothing.
    wiring.watch_if_defined(
        watcher::Config::default(),
        &policies,
        |_: &MigrationPolicy| (),
    );

    let (queue, all) = (gate.clone(), migrations.clone());
    wiring.caches.guests.on_change(move |vmi| {
        let guest = Key::of(vmi);
        let of_namespace = all.in_namespace(&guest.namespace).into_iter();
        let of_guest = of_namespace.filter(|one| one.guest() == guest && !one.is_final());
        let of_guest: Vec<_> = of_guest.collect();
        if of_guest.iter().any(|one| one.end().is_some()) || vmi.is_of_two() {
            // The other end reads this VMI.
            let list = all.list();
            let of_others = list
                .iter()
                .filter(|one| one.end().is_some() && !one.is_final());
            queue.add_all(of_others.map(|one| Key::of(one.as_ref())), VMI);
        }
        queue.add_all(of_guest.iter().map(|one| Key::of(one.as_ref())), VMI);
    });
    let (queue, all) = (gate.clone(), migrations.clone());
    wiring.caches.pods.on_change(move |pod: &LauncherPod| {
        if pod.migration_uid.is_none() {
            return;
        }
        let of_namespace = all.in_namespace(&Key::of(pod).namespace).into_iter();
        let of_pod = of_namespace.filter(|one| one.metadata.uid == pod.migration_uid);
        queue.add_all(of_pod.map(|one| Key::of(one.as_ref())), POD);
    });
    let (queue, all) = (gate.clone(), migrations.clone());
    // The configuration may have lacked what the pod needs.
    wiring.on_configuration(move || {
        let waiting = all.list().into_iter();
        let waiting = waiting.filter(|one| one.is_waiting());
        queue.add_all(waiting.map(|one| Key::of(one.as_ref())), CONFIGURATION);
    });

    let controller = Controller {
        client: wiring.settings.client.clone(),
        migrations: migrations.clone(),
        policies,
        vmis: wiring.caches.guests.store(),
        pods: wiring.caches.pods.store(),
        source,
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
        begun: Arc::default(),
        _figures: Arc::default(),
    };
    evacuation::register(wiring, &controller);
    workload_update::register(wiring, &controller);
    wiring.controller(&gate, &migrations, move || Controller {
        _figures: Arc::default(),
        ..controller.clone()
    });
}

impl Reconciler for Controller {
    const NAME: &'static str = "migration";
    type Error = MigrationError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, MigrationError> {
        figures::observe(key, &self.migrations);
        let Some(migration) = self.migrations.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let observed = self.observe(migration).await?;
        let plan = plan::plan(&observed);
        Box::pin(self.act(&observed, &plan)).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.migrations.get(key)?.metadata.uid.clone()
    }
}
