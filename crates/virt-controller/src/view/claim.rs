//! The storage behind volumes: claims, and data volumes, which populate claims.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::data_volume_status::{
    DataVolume as WholeDataVolume, DataVolumeCondition, DataVolumePhase,
};
use reconcile::Tracked;
use serde::Deserialize;

use super::Labels;

/// The claims and data volumes that a controller observes.
#[derive(Debug, Clone)]
pub(crate) struct Volumes {
    pub(crate) claims: Tracked<Claim>,
    pub(crate) data_volumes: Tracked<DataVolume>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "PersistentVolumeClaim")]
pub(crate) struct Claim {
    pub(crate) metadata: ObjectMeta,
    pub(crate) is_bound: bool,
    /// The name of its storage class.
    pub(crate) class: Option<String>,
    /// For pods that use it.
    pub(crate) facts: launcher_pod::Claim,
}

impl From<PersistentVolumeClaim> for Claim {
    fn from(claim: PersistentVolumeClaim) -> Self {
        let facts = launcher_pod::Claim::of(&claim);
        let class = claim.spec.as_ref();
        let class = class.and_then(|spec| spec.storage_class_name.clone());
        let phase = claim.status.and_then(|status| status.phase);
        Self {
            metadata: super::slim(claim.metadata, Labels::Dropped, &[]),
            is_bound: phase.as_deref() == Some("Bound"),
            class,
            facts,
        }
    }
}

impl Claim {
    /// Whether a data volume populates it. A deleted data volume that is done releases its claim first.
    pub(crate) fn is_of_data_volume(&self) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true) && owner.kind == WholeDataVolume::KIND)
    }
}

reconcile::resource_view!(Claim, PersistentVolumeClaim, NamespaceResourceScope);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "WholeDataVolume")]
pub(crate) struct DataVolume {
    pub(crate) metadata: ObjectMeta,
    pub(crate) phase: DataVolumePhase,
    pub(crate) conditions: Vec<DataVolumeCondition>,
}

impl From<WholeDataVolume> for DataVolume {
    fn from(volume: WholeDataVolume) -> Self {
        let status = volume.status.unwrap_or_default();
        Self {
            metadata: super::slim(volume.metadata, Labels::Dropped, &[]),
            phase: status.phase.unwrap_or_default(),
            conditions: status.conditions,
        }
    }
}

reconcile::resource_view!(DataVolume, WholeDataVolume, NamespaceResourceScope);
