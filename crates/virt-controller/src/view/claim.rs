//! What volumes are made of: claims, and data volumes, which fill claims.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::data_volume_status::{
    DataVolume as WholeDataVolume, DataVolumeCondition, DataVolumePhase,
};
use reconcile::Tracked;
use serde::Deserialize;

use super::Labels;

/// What a controller looks at when it cares for volumes.
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
    /// For pods that stand on it.
    pub(crate) facts: launcher_pod::Claim,
}

impl From<PersistentVolumeClaim> for Claim {
    fn from(claim: PersistentVolumeClaim) -> Self {
        let facts = launcher_pod::Claim::of(&claim);
        let phase = claim.status.and_then(|status| status.phase);
        Self {
            metadata: super::slim(claim.metadata, Labels::Dropped, &[]),
            is_bound: phase.as_deref() == Some("Bound"),
            facts,
        }
    }
}

impl Claim {
    /// Whether a data volume fills it; one that is done and goes lets go of it before.
    pub(crate) fn is_of_data_volume(&self) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true) && owner.kind == WholeDataVolume::KIND)
    }
}

super::seen_as!(Claim, PersistentVolumeClaim, NamespaceResourceScope);

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

super::seen_as!(DataVolume, WholeDataVolume, NamespaceResourceScope);
