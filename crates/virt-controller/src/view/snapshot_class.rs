//! Which claims can be copied: storage classes, and the snapshot classes of their drivers.

use k8s_openapi::api::storage::v1::StorageClass as WholeStorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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
}

impl From<WholeStorageClass> for StorageClass {
    fn from(class: WholeStorageClass) -> Self {
        Self {
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
