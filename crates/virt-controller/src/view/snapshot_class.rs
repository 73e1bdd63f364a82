//! Which claims can be copied: storage classes, and the snapshot classes of their drivers.

use k8s_openapi::api::storage::v1::StorageClass as WholeStorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::annotations;
use kubevirt_api::storage_profile::{CdiCloneStrategy, StorageProfile};
use kubevirt_api::volume_snapshot::{VolumeSnapshotClass, class_of_driver};
use reconcile::{Key, Store};
use serde::Deserialize;

use super::{Claim, Labels};

/// A storage class, as far as the controllers read it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "WholeStorageClass")]
pub(crate) struct StorageClass {
    pub(crate) metadata: ObjectMeta,
    pub(crate) provisioner: String,
    /// How its claims should be copied, by an annotation.
    pub(crate) clone_strategy: Option<CdiCloneStrategy>,
    /// Whether claims get it that name no class.
    pub(crate) is_default: bool,
}

impl From<WholeStorageClass> for StorageClass {
    fn from(class: WholeStorageClass) -> Self {
        let notes = class.metadata.annotations.clone().unwrap_or_default();
        let strategy = notes.get(annotations::CDI_CLONE_STRATEGY);
        Self {
            clone_strategy: strategy.map(|text| CdiCloneStrategy::from(text.as_str())),
            is_default: notes
                .get(annotations::DEFAULT_STORAGE_CLASS)
                .is_some_and(|value| value == "true"),
            metadata: super::slim(class.metadata, Labels::Dropped, &[]),
            provisioner: class.provisioner,
        }
    }
}

reconcile::resource_view!(StorageClass, WholeStorageClass, ClusterResourceScope);

/// All classes. Clones share the content.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotClasses {
    pub(crate) storage: Store<StorageClass>,
    /// They may name the class of snapshots.
    pub(crate) profiles: Store<StorageProfile>,
    pub(crate) snapshot: Store<VolumeSnapshotClass>,
}

impl SnapshotClasses {
    /// The name of the snapshot class for the claim, or why it cannot be copied.
    pub(crate) fn of(&self, claim: &Claim) -> Result<String, String> {
        if !self.snapshot.is_defined() {
            return Err("this cluster has no volume snapshots \
                        (volumesnapshots.snapshot.storage.k8s.io): install the CSI snapshot \
                        controller"
                .to_owned());
        }
        let Some(name) = claim
            .storage_class
            .as_deref()
            .filter(|name| !name.is_empty())
        else {
            return Err("its claim has no storage class".to_owned());
        };
        let Some(storage) = self.storage.get(&Key::new("", name)) else {
            return Err(format!("its storage class {name} does not exist"));
        };
        let profile = self.profiles.get(&Key::new("", name));
        let named = profile.and_then(|profile| profile.status.clone()?.snapshot_class);
        if let Some(named) = named.filter(|it| self.snapshot.get(&Key::new("", it)).is_some()) {
            return Ok(named);
        }
        let classes = self.snapshot.list();
        let driver = &storage.provisioner;
        let class = class_of_driver(classes.iter().map(AsRef::as_ref), driver);
        class
            .and_then(|class| class.metadata.name.clone())
            .ok_or_else(|| {
                format!(
                    "no VolumeSnapshotClass is for driver {driver} of storage class {name}, or \
                     several are and none is marked as default"
                )
            })
    }
}
