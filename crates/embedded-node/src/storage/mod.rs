//! Persistent volumes of this host: a storage class, what it makes, and who may have it.
//!
//! - [`claim`] and [`volume`] decide, [`act`] does: together they are what the volume controller
//!   and a provisioner are elsewhere.
//! - [`backing`] is what volumes are made of, [`loop_device`] and [`in_use`] show files as devices.
//! - [`lookup`] is what a pod finds behind the names of its claims.
//!
//! **Invariants.** Nothing is remembered that the API server or the disk does not say: every step
//! may be cut off and is found half done by the next pass. Data is removed only when the claim has
//! gone, the policy is `Delete` and the volume was made here.

mod act;
mod backing;
mod claim;
pub(crate) mod in_use;
mod lookup;
#[expect(unsafe_code, reason = "loop devices are set up by ioctl alone")]
mod loop_device;
mod volume;

use std::{collections::HashMap, fmt, path::Path, sync::Arc, time::Duration};

use error_chain::error_chain;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::runtime::watcher;
use parking_lot::Mutex;
use reconcile::{Key, Recorder, Store, Triggers, run_controller};
use tokio_util::sync::CancellationToken;

use crate::node::Shared;

pub(crate) use backing::Mode as BackingMode;
pub(crate) use lookup::{Claimed, claimed, obstacle};

/// Who makes volumes of class [`CLASS`].
pub(crate) const PROVISIONER: &str = "ferrovirt.io/local";
const CLASS: &str = "local";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Objects worked on at a time: what takes long is the disk, and there is one.
const AT_ONCE: usize = 4;
const RETRY: Duration = Duration::from_secs(5);

/// What is known of storage, and what waits for a look.
pub(crate) struct Storage {
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) volumes: Store<PersistentVolume>,
    pub(crate) classes: Store<StorageClass>,
    recorder: Recorder,
    claim_triggers: Triggers,
    volume_triggers: Triggers,
    /// What was last said about a claim, so that it is said once.
    said: Mutex<HashMap<Key, claim::Note>>,
}

impl Storage {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self {
            claims: Store::new(),
            volumes: Store::new(),
            classes: Store::new(),
            recorder,
            claim_triggers: Triggers::new(),
            volume_triggers: Triggers::new(),
            said: Mutex::default(),
        }
    }

    /// A pod came, changed or went.
    pub(crate) fn on_pod(&self, pod: &Pod) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        for name in lookup::claim_names(pod) {
            self.claim_triggers
                .add(Key::new(namespace.clone(), name.1), "pod");
        }
    }

    fn on_claim(&self, claim: &PersistentVolumeClaim) {
        self.claim_triggers
            .add(Key::of(claim), "persistentvolumeclaim");
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
            None => self.on_supply(),
        }
    }

    /// Something that claims may have waited for.
    pub(crate) fn on_supply(&self) {
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

/// Gives back what the pods of this node held as devices; needs no API server.
pub(crate) fn sweep_devices(root: &Path) -> std::io::Result<()> {
    in_use::sweep(root)
}

/// Keeps claims and volumes until `stop`.
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
                |_: &StorageClass| storage.on_supply(),
                stop.clone(),
            ),
        )
    };
    let work = async {
        tokio::select! {
            () = stop.cancelled() => return,
            () = ready(&shared) => {}
        }
        act::take_up(&shared).await;
        tokio::join!(
            keep_class(&shared, &stop),
            run_controller(
                Arc::new(act::Claims(Arc::clone(&shared))),
                storage.claim_triggers.clone(),
                AT_ONCE,
                stop.clone(),
            ),
            run_controller(
                Arc::new(act::Volumes(Arc::clone(&shared))),
                storage.volume_triggers.clone(),
                AT_ONCE,
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
        shared.pods.ready(),
        shared.node.ready(),
    );
}

/// Makes the storage class once; what users make of it then is theirs.
async fn keep_class(shared: &Shared, stop: &CancellationToken) {
    while let Err(error) = act::ensure_class(shared).await {
        let error = error_chain(&error);
        tracing::warn!(error, "the storage class is not made");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}
