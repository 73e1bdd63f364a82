//! Persistent volumes of this host: a storage class, its provisioner and the volume controller.
//!
//! - [`claim`] and [`volume`] plan, [`act`] performs the steps.
//! - [`backing`] stores volumes on disk; [`loop_device`] and [`in_use`] attach files as devices.
//! - [`lookup`] resolves the claims of a pod.
//! - [`project`] limits directories to their capacity, where the file system can; [`capacity`] reports volumes that
//!   hold more.
//! - [`snapshots`] takes volume snapshots, of which `claim` provisions volumes; [`copy`] copies data.
//!
//! **Invariants.** All state is on the API server or on disk: every step may be interrupted, and
//! the next reconcile completes it. Data is removed only when the claim is gone, the policy is
//! `Delete` and the volume was made here.

mod act;
mod backing;
mod capacity;
mod claim;
mod copy;
pub(crate) mod definitions;
pub(crate) mod in_use;
mod lookup;
#[expect(unsafe_code, reason = "loop devices are set up by ioctl alone")]
mod loop_device;
#[expect(unsafe_code, reason = "quotas of projects have no safe wrapper")]
mod project;
mod snapshots;
mod volume;

use std::{collections::HashMap, fmt, path::Path, sync::Arc, time::Duration};

use error_chain::error_chain;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::runtime::watcher;
use parking_lot::Mutex;
use reconcile::{Key, Recorder, Store, Triggers, panic_events, run_controller};
use tokio_util::sync::CancellationToken;

use crate::node::Shared;
use snapshots::Snapshots;

pub(crate) use backing::Mode as BackingMode;
pub(crate) use lookup::{ClaimedVolume, obstacle, resolve_claims};

/// The provisioner of class [`CLASS`].
pub(crate) const PROVISIONER: &str = "ferrovirt.io/local";
const CLASS: &str = "local";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Few, as the one disk is the bottleneck.
const CONCURRENCY: usize = 4;
const RETRY: Duration = Duration::from_secs(5);

/// Caches of storage objects, and the keys to reconcile.
pub(crate) struct Storage {
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) volumes: Store<PersistentVolume>,
    pub(crate) classes: Store<StorageClass>,
    snapshots: Snapshots,
    recorder: Recorder,
    claim_triggers: Triggers,
    volume_triggers: Triggers,
    /// The last event of each claim, so that it is published once.
    published: Mutex<HashMap<Key, claim::Event>>,
}

impl Storage {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self {
            claims: Store::new(),
            volumes: Store::new(),
            classes: Store::new(),
            snapshots: Snapshots::new(),
            recorder,
            claim_triggers: Triggers::new(),
            volume_triggers: Triggers::new(),
            published: Mutex::default(),
        }
    }

    /// A pod was added, changed or deleted.
    pub(crate) fn on_pod(&self, pod: &Pod) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        for (_, claim) in lookup::claim_names(pod) {
            let key = Key::new(namespace.clone(), claim);
            self.requeue_copies(&key);
            self.claim_triggers.add(key, "pod");
        }
    }

    /// Triggers the claims that wait to become copies of this one.
    fn requeue_copies(&self, source: &Key) {
        for claim in self.claims.in_namespace(&source.namespace) {
            let is_copy = matches!(
                claim::data_source(&claim),
                Ok(claim::DataSource::Claim(name)) if name == source.name
            );
            if is_copy && claim::phase(&claim) != "Bound" {
                self.claim_triggers.add(Key::of(claim.as_ref()), "source");
            }
        }
    }

    fn on_claim(&self, claim: &PersistentVolumeClaim) {
        self.claim_triggers
            .add(Key::of(claim), "persistentvolumeclaim");
        let key = Key::of(claim);
        self.requeue_copies(&key);
        let data = claim::data_source(claim).unwrap_or(claim::DataSource::None);
        self.snapshots.on_claim(&key, &data);
        let own = claim.metadata.uid.as_deref().map(volume_name);
        let named = claim::volume_name(claim).map(ToOwned::to_owned);
        for name in own.into_iter().chain(named) {
            self.volume_triggers
                .add(Key::new("", name), "persistentvolumeclaim");
        }
    }

    fn on_volume(&self, volume: &PersistentVolume) {
        self.volume_triggers
            .add(Key::of(volume), "persistentvolume");
        let spec = volume.spec.as_ref();
        match spec.and_then(|spec| spec.claim_ref.as_ref()) {
            Some(reference) => self.claim_triggers.add(
                Key::new(
                    reference.namespace.clone().unwrap_or_default(),
                    reference.name.clone().unwrap_or_default(),
                ),
                "persistentvolume",
            ),
            None => self.requeue_unbound(),
        }
    }

    /// A volume, class or node changed for which claims may wait.
    pub(crate) fn requeue_unbound(&self) {
        for claim in self.claims.list() {
            if claim::phase(&claim) != "Bound" {
                self.claim_triggers.add(Key::of(claim.as_ref()), "supply");
            }
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage")
            .field("claims", &self.claims)
            .field("volumes", &self.volumes)
            .finish_non_exhaustive()
    }
}

/// The name of the volume made for the claim of that uid.
fn volume_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}

/// Detaches devices that no pod of this node uses; needs no API server.
pub(crate) fn sweep_devices(root: &Path) -> std::io::Result<()> {
    in_use::sweep(root)
}

/// Reconciles claims and volumes until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let storage = &shared.storage;
    let client = || shared.settings.client.clone();
    let config = watcher::Config::default;
    let wake_claim = |claim: &PersistentVolumeClaim| {
        storage.on_claim(claim);
        shared.node_changed.send_replace(());
    };
    let watches = async {
        tokio::join!(
            reconcile::watch(
                client(),
                config(),
                storage.claims.clone(),
                wake_claim,
                stop.clone()
            ),
            reconcile::watch(
                client(),
                config(),
                storage.volumes.clone(),
                |volume| storage.on_volume(volume),
                stop.clone(),
            ),
            reconcile::watch(
                client(),
                config(),
                storage.classes.clone(),
                |_: &StorageClass| storage.requeue_unbound(),
                stop.clone(),
            ),
            snapshots::watch(&shared, &stop),
        )
    };
    let work = async {
        tokio::select! {
            () = stop.cancelled() => return,
            () = ready(&shared) => {}
        }
        act::recover(&shared).await;
        tokio::join!(
            create_class(&shared, &stop),
            snapshots::run(&shared, &stop),
            capacity::watch(&shared, &stop),
            run_controller(
                Arc::new(act::Claims(Arc::clone(&shared))),
                storage.claim_triggers.clone(),
                CONCURRENCY,
                panic_events(storage.recorder.clone(), storage.claims.clone()),
                stop.clone(),
            ),
            run_controller(
                Arc::new(act::Volumes(Arc::clone(&shared))),
                storage.volume_triggers.clone(),
                CONCURRENCY,
                panic_events(storage.recorder.clone(), storage.volumes.clone()),
                stop.clone(),
            ),
        );
    };
    tokio::join!(watches, work);
}

async fn ready(shared: &Shared) {
    tokio::join!(
        shared.storage.claims.ready(),
        shared.storage.volumes.ready(),
        shared.storage.classes.ready(),
        snapshots::ready(shared),
        shared.pods.ready(),
        shared.node.ready(),
    );
}

/// Creates the storage class once; users may change it afterwards.
async fn create_class(shared: &Shared, stop: &CancellationToken) {
    while let Err(error) = act::ensure_class(shared).await {
        let error = error_chain(&error);
        tracing::warn!(error, "storage class cannot be created");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}
