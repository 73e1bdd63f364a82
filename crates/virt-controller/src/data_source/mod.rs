//! The controller of data sources: says what each stands for, and whether new disks can be made from it.
//!
//! Like that of data volumes it works only while the definition of data volumes is ours.
//!
//! **Invariants**: it changes nothing but the status of data sources; whether data of another namespace exists
//! is told only to a namespace that may copy it.

mod act;
mod observe;
mod plan;
mod resolve;

use kube::Client;
use kubevirt_api::data_source::DataSource;
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, Tracked, WriteError,
};

pub(crate) use self::resolve::{Target, resolve};
use crate::gate::Gate;
use crate::view::{ImporterDefinition, Volumes};
use crate::wiring::Wiring;

/// Trigger by a data source.
const DATA_SOURCE: &str = "datasource";
/// Trigger by a volume snapshot.
const SNAPSHOT: &str = "volumesnapshot";
/// Trigger by the definition of data volumes.
const DEFINITION: &str = "customresourcedefinition";

#[derive(Clone)]
struct Controller {
    client: Client,
    data_sources: Store<DataSource>,
    /// The same, for those that refer to others.
    sources: Tracked<DataSource>,
    definitions: Store<ImporterDefinition>,
    volumes: Volumes,
    snapshots: Tracked<VolumeSnapshot>,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let data_sources = wiring.caches.data_sources.store();
    let sources = Tracked::new(data_sources.clone());
    let (queue, tracked) = (gate.clone(), sources.clone());
    wiring.caches.data_sources.on_change(move |source| {
        let key = Key::of(source);
        queue.add_all(tracked.changed(&key), DATA_SOURCE);
        queue.add(key, DATA_SOURCE);
    });
    let snapshots = Tracked::new(wiring.caches.volume_snapshots.store());
    let (queue, tracked) = (gate.clone(), snapshots.clone());
    wiring.caches.volume_snapshots.on_change(move |snapshot| {
        queue.add_all(tracked.changed(&Key::of(snapshot)), SNAPSHOT);
    });
    let (queue, all) = (gate.clone(), data_sources.clone());
    let on_change = move |_: &ImporterDefinition| queue.add_all(all.keys(), DEFINITION);
    wiring.caches.importer.on_change(on_change);
    let controller = Controller {
        client: wiring.settings.client.clone(),
        data_sources: data_sources.clone(),
        sources,
        definitions: wiring.caches.importer.store(),
        volumes: wiring.caches.volumes(&gate),
        snapshots,
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &data_sources, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum DataSourceError {
    #[error("read from the API server")]
    Read(#[source] Box<kube::Error>),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for DataSourceError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) => Retry::BackOff,
            Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "datasource";
    type Error = DataSourceError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, DataSourceError> {
        let source = self.data_sources.get(key);
        let source = source.filter(|source| source.metadata.deletion_timestamp.is_none());
        let Some(source) = source.filter(|_| !self.definitions.is_empty()) else {
            return Ok(Requeue::OnChange);
        };
        let observed = self.observe(key, &source).await?;
        let plan = plan::plan(&observed);
        self.act(key, &source, &plan).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.data_sources.get(key)?.metadata.uid.clone()
    }
}
