//! The controller of storage profiles: keeps one for each storage class, which says how to claim volumes of it.
//!
//! Like that of data volumes it works only while the definition of data volumes is ours.
//!
//! **Invariants**: the spec of a profile belongs to administrators and is never written; a profile ends with its
//! class.

mod act;
mod plan;

use kube::Client;
use kubevirt_api::storage_profile::StorageProfile;
use kubevirt_api::volume_snapshot::{VolumeSnapshotClass, class_of_driver};
use reasons::Reason;
use reconcile::{Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError};

use self::plan::Observed;
pub(crate) use self::plan::choose;
use crate::gate::Gate;
use crate::view::{ImporterDefinition, StorageClass};
use crate::wiring::Wiring;

/// Trigger by a storage class.
const STORAGE_CLASS: &str = "storageclass";
/// Trigger by a profile.
const PROFILE: &str = "storageprofile";
/// Trigger by a class of volume snapshots.
const SNAPSHOT_CLASS: &str = "volumesnapshotclass";
/// Trigger by the definition of data volumes.
const DEFINITION: &str = "customresourcedefinition";

#[derive(Clone)]
struct Controller {
    client: Client,
    classes: Store<StorageClass>,
    profiles: Store<StorageProfile>,
    snapshot_classes: Store<VolumeSnapshotClass>,
    definitions: Store<ImporterDefinition>,
    recorder: Recorder,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let classes = wiring.caches.storage_classes.store();
    let queue = gate.clone();
    let on_change = move |class: &StorageClass| queue.add(Key::of(class), STORAGE_CLASS);
    wiring.caches.storage_classes.on_change(on_change);
    let queue = gate.clone();
    let on_change = move |profile: &StorageProfile| queue.add(Key::of(profile), PROFILE);
    wiring.caches.storage_profiles.on_change(on_change);
    let (queue, all) = (gate.clone(), classes.clone());
    let on_change = move |_: &VolumeSnapshotClass| queue.add_all(all.keys(), SNAPSHOT_CLASS);
    wiring.caches.snapshot_classes.on_change(on_change);
    let (queue, all) = (gate.clone(), classes.clone());
    let on_change = move |_: &ImporterDefinition| queue.add_all(all.keys(), DEFINITION);
    wiring.caches.importer.on_change(on_change);
    let controller = Controller {
        client: wiring.settings.client.clone(),
        classes: classes.clone(),
        profiles: wiring.caches.storage_profiles.store(),
        snapshot_classes: wiring.caches.snapshot_classes.store(),
        definitions: wiring.caches.importer.store(),
        recorder: wiring.recorder.clone(),
    };
    wiring.controller(&gate, &classes, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum StorageProfileError {
    #[error("create the profile")]
    Create(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for StorageProfileError {
    fn reason(&self) -> Reason {
        match self {
            Self::Create(_) => Reason::FailedCreate,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Create(source) | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "storageprofile";
    type Error = StorageProfileError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, StorageProfileError> {
        let class = self.classes.get(key);
        let is_ours = !self.definitions.is_empty() && self.profiles.is_defined();
        let Some(class) = class.filter(|_| is_ours) else {
            return Ok(Requeue::OnChange);
        };
        let all = self.snapshot_classes.list();
        let of_driver = class_of_driver(all.iter().map(AsRef::as_ref), &class.provisioner);
        let observed = Observed {
            name: key.name.clone(),
            profile: self.profiles.get(key),
            snapshot_class: of_driver.and_then(|class| class.metadata.name.clone()),
            class,
        };
        let plan = plan::plan(&observed);
        self.act(key, &observed, &plan).await?;
        Ok(Requeue::OnChange)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.classes.get(key)?.metadata.uid.clone()
    }
}
