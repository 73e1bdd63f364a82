//! The controller of data volumes: creates the claim of each, populates it with a pod, and reports the
//! progress. Two controllers of their own are here: [`upload`] receives disks that clients send, and [`cron`] imports an
//! image again when it changes. Restores of backups ([`crate::backup_restore`]) use the same pods.
//!
//! All work only while the definition of data volumes has the label of our installation; where CDI defines
//! them, CDI populates the claims.
//!
//! A source in another namespace is exported there ([`transfer`]).
//!
//! **Invariants**: a claim that is marked as populated is never written again; the pod and the claim belong
//! to the data volume and end with it; whatever the importer cannot do is refused in the status.

mod act;
mod claim;
mod cron;
mod ended;
mod named;
mod observe;
mod plan;
mod pod;
mod request;
mod status;
#[cfg(test)]
mod tests;
mod transfer;
mod upload;
mod view;

use cluster_view::Configuration;
use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::data_source::DataSource;
use kubevirt_api::data_volume_status::DataVolume as Whole;
use kubevirt_api::labels;
use kubevirt_api::storage_profile::StorageProfile;
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use launcher_pod::Settings;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, Tracked, WriteError,
};

pub(crate) use self::claim::{capacity, is_block, usable_bytes, with_overhead};
pub(crate) use self::ended::{
    Permanence, delay as pod_delay, is_deleting, problem as pod_problem, restarts as pod_restarts,
    waiting as pod_waiting,
};
pub(crate) use self::named::permit;
pub(crate) use self::observe::{claim_users, importer_progress, is_of, waits_for_consumer};
pub(crate) use self::plan::pause as progress_pause;
pub(crate) use self::pod::{InspectInput, RestoreInput, render_inspect, render_restore};
pub(crate) use self::transfer::over as copy_is_over;
#[cfg(test)]
pub(crate) use self::view::End;
pub(crate) use self::view::{ClaimUser, Container, ImporterPod, PodPhase};
use crate::caches::DATA_VOLUME;
use crate::gate::Gate;
use crate::view::{Claim, DataVolume, Host, ImporterDefinition, StorageClass, Volumes};
use crate::wiring::Wiring;
use crate::{CopyRights, Uploads};

/// Trigger by the claim of a data volume.
const CLAIM: &str = "persistentvolumeclaim";
/// Trigger by an importer pod.
const POD: &str = "pod";
/// Trigger by a volume snapshot.
const SNAPSHOT: &str = "volumesnapshot";
/// Trigger by a data source.
const DATA_SOURCE: &str = "datasource";
/// Trigger by the definition of data volumes.
const DEFINITION: &str = "customresourcedefinition";

#[derive(Clone)]
struct Controller {
    client: Client,
    data_volumes: Store<DataVolume>,
    /// Definitions that were installed with Ferrovirt.
    definitions: Store<ImporterDefinition>,
    volumes: Volumes,
    snapshots: Tracked<VolumeSnapshot>,
    data_sources: Tracked<DataSource>,
    classes: Store<StorageClass>,
    profiles: Store<StorageProfile>,
    pods: Store<ImporterPod>,
    hosts: Store<Host>,
    cluster: Configuration,
    launcher: Settings,
    uploads: Uploads,
    copies: CopyRights,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let data_volumes = wiring.caches.data_volumes.store();
    let queue = gate.clone();
    wiring
        .caches
        .data_volumes
        .on_change(move |volume: &DataVolume| queue.add(Key::of(volume), DATA_VOLUME));
    let queue = gate.clone();
    wiring.caches.claims.on_change(move |claim: &Claim| {
        if let Some(owner) = Key::of_controller(claim, Whole::KIND) {
            queue.add(owner, CLAIM);
        }
    });
    let pods: Store<ImporterPod> = Store::new();
    let selector = format!("{}={}", labels::COMPONENT, labels::COMPONENT_DISK_IMPORT);
    let config = watcher::Config::default().labels(&selector);
    let definitions = wiring.caches.importer.store();
    let receiving = wiring.settings.uploads == Uploads::Received;
    let uploads = receiving.then(|| upload::register(wiring, &pods, &definitions));
    let crons = cron::register(wiring, &pods);
    let restores = crate::backup_restore::register(wiring, &pods);
    let (queue, of_upload) = (gate.clone(), uploads.clone());
    wiring.watch(config, &pods, move |pod: &ImporterPod| {
        if let Some(owner) = Key::of_controller(pod, Whole::KIND) {
            queue.add(owner, POD);
        }
        crons.pod_changed(pod);
        restores.pod_changed(pod);
        if let Some(of_upload) = &of_upload {
            of_upload.pod_changed(pod);
        }
    });
    let (queue, all) = (gate.clone(), data_volumes.clone());
    wiring
        .caches
        .importer
        .on_change(move |_: &ImporterDefinition| {
            queue.add_all(all.keys(), DEFINITION);
            if let Some(uploads) = &uploads {
                uploads.definition_changed();
            }
        });
    let snapshots = Tracked::new(wiring.caches.volume_snapshots.store());
    let (queue, tracked) = (gate.clone(), snapshots.clone());
    wiring.caches.volume_snapshots.on_change(move |snapshot| {
        queue.add_all(tracked.changed(&Key::of(snapshot)), SNAPSHOT);
    });
    let data_sources = Tracked::new(wiring.caches.data_sources.store());
    let (queue, tracked) = (gate.clone(), data_sources.clone());
    wiring.caches.data_sources.on_change(move |source| {
        queue.add_all(tracked.changed(&Key::of(source)), DATA_SOURCE);
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        data_volumes: data_volumes.clone(),
        definitions,
        volumes: wiring.caches.volumes(&gate),
        snapshots,
        data_sources,
        classes: wiring.caches.storage_classes.store(),
        profiles: wiring.caches.storage_profiles.store(),
        pods,
        hosts: wiring.caches.hosts.store(),
        cluster: wiring.cluster.clone(),
        launcher: wiring.settings.launcher.clone(),
        uploads: wiring.settings.uploads,
        copies: wiring.settings.copies,
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &data_volumes, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum DataVolumeError {
    #[error("read from the API server")]
    Read(#[source] Box<kube::Error>),
    #[error("create the importer's pod: the claim has changed")]
    Stale,
    #[error("create the importer's pod: the claim has no size")]
    NoSize,
    #[error("create the claim")]
    CreateClaim(#[source] WriteError),
    #[error("mark the claim as populated")]
    MarkClaim(#[source] WriteError),
    #[error("export the source in the other namespace")]
    OpenSource(#[source] WriteError),
    #[error("delete the export of the source")]
    CloseSource(#[source] WriteError),
    #[error("create the importer's pod")]
    CreatePod(#[source] WriteError),
    #[error("delete the importer's pod")]
    DeletePod(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl DataVolumeError {
    fn read(error: kube::Error) -> Self {
        Self::Read(Box::new(error))
    }
}

impl ReconcileError for DataVolumeError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Stale | Self::MarkClaim(_) => Reason::FailedUpdate,
            Self::NoSize | Self::CreateClaim(_) | Self::OpenSource(_) | Self::CreatePod(_) => {
                Reason::FailedCreate
            }
            Self::CloseSource(_) | Self::DeletePod(_) => Reason::FailedDelete,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) | Self::Stale | Self::NoSize => Retry::BackOff,
            Self::CreateClaim(source)
            | Self::MarkClaim(source)
            | Self::OpenSource(source)
            | Self::CloseSource(source)
            | Self::CreatePod(source)
            | Self::DeletePod(source)
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "datavolume";
    type Error = DataVolumeError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, DataVolumeError> {
        let Some(volume) = self.data_volumes.get(key) else {
            return Ok(Requeue::OnChange);
        };
        if self.definitions.is_empty() {
            return Ok(Requeue::OnChange);
        }
        let observed = self.observe(key, volume).await?;
        let plan = plan::plan(&observed);
        self.act(key, &observed, &plan).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.data_volumes.get(key)?.metadata.uid.clone()
    }
}
