//! The controller of periodic imports: looks for new versions of an image at the times of a schedule, imports them
//! into new data volumes, and has a data source stand for the latest.
//!
//! A pod finds out the version, as one imports: it reaches what pods of the namespace reach, and the controller
//! itself reads no address of a user.
//!
//! **Invariants**: nothing is copied from a claim or snapshot, so from no other namespace either; the data source
//! leads to complete imports only; only data volumes with the label of the object are deleted.

mod act;
mod observe;
mod plan;
mod schedule;
#[cfg(test)]
mod tests;

use cluster_view::Configuration;
use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::data_import_cron::DataImportCron;
use kubevirt_api::data_source::DataSource;
use launcher_pod::Settings;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, Tracked, WriteError,
};

use super::view::ImporterPod;
use crate::gate::Gate;
use crate::view::{DataVolume, Host, ImporterDefinition};
use crate::wiring::Wiring;

/// Trigger by a periodic import.
const CRON: &str = "dataimportcron";
/// Trigger by a pod that looks for a version.
const POD: &str = "pod";
/// Trigger by a data volume.
const DATA_VOLUME: &str = "datavolume";
/// Trigger by a data source.
const DATA_SOURCE: &str = "datasource";
/// Trigger by the definition of data volumes.
const DEFINITION: &str = "customresourcedefinition";

#[derive(Clone)]
struct Controller {
    client: Client,
    crons: Store<DataImportCron>,
    data_sources: Tracked<DataSource>,
    definitions: Store<ImporterDefinition>,
    pods: Store<ImporterPod>,
    hosts: Store<Host>,
    cluster: Configuration,
    launcher: Settings,
    recorder: Recorder,
    clock: Clock,
}

/// What triggers this controller besides its own objects.
#[derive(Clone)]
pub(super) struct Queue {
    gate: Gate,
}

impl Queue {
    pub(super) fn pod_changed(&self, pod: &ImporterPod) {
        if let Some(owner) = Key::of_controller(pod, DataImportCron::KIND) {
            self.gate.add(owner, POD);
        }
    }
}

/// The name of the pod that looks for a version.
fn pod_name(uid: &str) -> String {
    format!("version-{uid}")
}

/// The store of pods is that of data volumes, which is watched once.
pub(super) fn register(wiring: &mut Wiring<'_>, pods: &Store<ImporterPod>) -> Queue {
    let gate = Gate::default();
    let crons: Store<DataImportCron> = Store::new();
    let queue = gate.clone();
    let on_change = move |cron: &DataImportCron| queue.add(Key::of(cron), CRON);
    wiring.watch_if_defined(watcher::Config::default(), &crons, on_change);
    let data_sources = Tracked::new(wiring.caches.data_sources.store());
    let (queue, tracked) = (gate.clone(), data_sources.clone());
    wiring.caches.data_sources.on_change(move |source| {
        queue.add_all(tracked.changed(&Key::of(source)), DATA_SOURCE);
    });
    let (queue, all) = (gate.clone(), crons.clone());
    wiring.caches.data_volumes.on_change(move |volume: &DataVolume| {
        let name = volume.cron.as_deref();
        let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
        let key = name.map(|name| Key::new(namespace, name));
        queue.add_all(key.filter(|key| all.get(key).is_some()), DATA_VOLUME);
    });
    let (queue, all) = (gate.clone(), crons.clone());
    let on_change = move |_: &ImporterDefinition| queue.add_all(all.keys(), DEFINITION);
    wiring.caches.importer.on_change(on_change);
    let controller = Controller {
        client: wiring.settings.client.clone(),
        crons: crons.clone(),
        data_sources,
        definitions: wiring.caches.importer.store(),
        pods: pods.clone(),
        hosts: wiring.caches.hosts.store(),
        cluster: wiring.cluster.clone(),
        launcher: wiring.settings.launcher.clone(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &crons, move || controller.clone());
    Queue { gate }
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum CronError {
    #[error("read from the API server")]
    Read(#[source] Box<kube::Error>),
    #[error("create data volume {0}: another object has its name")]
    NameTaken(String),
    #[error("create {what}")]
    Create {
        what: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("update the data source")]
    Point(#[source] WriteError),
    #[error("delete {what}")]
    Delete {
        what: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl CronError {
    fn read(error: kube::Error) -> Self {
        Self::Read(Box::new(error))
    }
}

impl ReconcileError for CronError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::NameTaken(_) | Self::Create { .. } => Reason::FailedCreate,
            Self::Point(_) => Reason::FailedUpdate,
            Self::Delete { .. } => Reason::FailedDelete,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) | Self::NameTaken(_) => Retry::BackOff,
            Self::Create { source, .. }
            | Self::Point(source)
            | Self::Delete { source, .. }
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "dataimportcron";
    type Error = CronError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, CronError> {
        let cron = self.crons.get(key);
        let cron = cron.filter(|cron| cron.metadata.deletion_timestamp.is_none());
        let Some(cron) = cron.filter(|_| !self.definitions.is_empty()) else {
            return Ok(Requeue::OnChange);
        };
        let observed = self.observe(key, cron).await?;
        let plan = plan::plan(&observed);
        self.act(key, &observed, &plan).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.crons.get(key)?.metadata.uid.clone()
    }
}
