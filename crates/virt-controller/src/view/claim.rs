//! The storage behind volumes: claims, and data volumes, which populate claims.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::backup_restore::RestoreMark;
use kubevirt_api::conditions::{self, Condition};
use kubevirt_api::data_volume_status::{
    DataVolume as WholeDataVolume, DataVolumeCondition, DataVolumeConditionType, DataVolumePhase,
};
use kubevirt_api::{annotations, labels};
use reasons::Reason;
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
    /// Its volume is gone.
    pub(crate) is_lost: bool,
    pub(crate) storage_class: Option<String>,
    /// Its storage makes it from another claim.
    pub(crate) is_cloned: bool,
    /// For pods that use it.
    pub(crate) facts: launcher_pod::Claim,
}

impl From<PersistentVolumeClaim> for Claim {
    fn from(claim: PersistentVolumeClaim) -> Self {
        let facts = launcher_pod::Claim::of(&claim);
        let phase = claim.status.and_then(|status| status.phase);
        let kept = [
            annotations::CDI_POPULATED_FOR,
            annotations::CDI_UPLOAD_TARGET,
            annotations::CDI_CONTENT_TYPE,
            annotations::CDI_BIND_IMMEDIATE_REQUESTED,
            annotations::CDI_POD_PHASE,
            annotations::CDI_POD_READY,
            annotations::CDI_RUNNING,
            annotations::CDI_RUNNING_REASON,
            annotations::CDI_RUNNING_MESSAGE,
            annotations::UPLOAD_REFUSED,
            annotations::IMPORT_RESTARTS,
            annotations::COPIED_FROM,
            annotations::BACKUP_RESTORE,
        ];
        let source = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.data_source.as_ref());
        let is_cloned = source.is_some_and(|source| source.kind == "PersistentVolumeClaim");
        Self {
            is_cloned,
            metadata: super::slim(claim.metadata, Labels::Dropped, &kept),
            is_bound: phase.as_deref() == Some("Bound"),
            is_lost: phase.as_deref() == Some("Lost"),
            storage_class: claim.spec.and_then(|spec| spec.storage_class_name),
            facts,
        }
    }
}

impl Claim {
    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        let all = self.metadata.annotations.as_ref()?;
        all.get(name).map(String::as_str)
    }

    /// Whether a pod writes an uploaded disk to it, or is created for that.
    pub(crate) fn receives_upload(&self) -> bool {
        let is_target = self.annotation(annotations::CDI_UPLOAD_TARGET).is_some();
        // The reasons for which there is no pod.
        let is_blocked = || {
            let reason = self.annotation(annotations::CDI_RUNNING_REASON);
            let reason = reason.and_then(|reason| reason.parse::<Reason>().ok());
            matches!(
                reason,
                Some(
                    Reason::WaitForFirstConsumer
                        | Reason::UploadTargetInUse
                        | Reason::ImportNotSupported
                        | Reason::ClaimLost
                        | Reason::FailedCreate
                )
            )
        };
        is_target
            && match self.annotation(annotations::CDI_POD_PHASE) {
                Some("Running") => true,
                Some("Pending") => !is_blocked(),
                _ => false,
            }
    }

    /// Whether it was made for an upload that is not complete.
    pub(crate) fn awaits_upload(&self) -> bool {
        self.annotation(annotations::CDI_UPLOAD_TARGET).is_some()
            && self.annotation(annotations::CDI_POD_PHASE) != Some("Succeeded")
            && self.annotation(annotations::CDI_POPULATED_FOR).is_none()
    }

    /// Why it has no complete disk, if a restore of a backup writes to it, or was given up.
    pub(crate) fn open_restore(&self) -> Option<String> {
        let mark = RestoreMark::parse(self.annotation(annotations::BACKUP_RESTORE)?)?;
        let name = &mark.name;
        mark.is_open()
            .then(|| format!("VirtualMachineBackupRestore {name} has not completed its disk"))
    }

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
    /// The name of the periodic import that made it.
    pub(crate) cron: Option<String>,
    /// All of it, until its claim is populated.
    pub(crate) unfinished: Option<Box<WholeDataVolume>>,
}

impl From<WholeDataVolume> for DataVolume {
    fn from(volume: WholeDataVolume) -> Self {
        let phase = volume
            .status
            .as_ref()
            .and_then(|status| status.phase.clone());
        let is_finished = phase == Some(DataVolumePhase::Succeeded);
        let unfinished = (!is_finished).then(|| Box::new(volume.clone()));
        let status = volume.status.unwrap_or_default();
        let marks = volume.metadata.labels.as_ref();
        let cron = marks.and_then(|marks| marks.get(labels::CDI_DATA_IMPORT_CRON));
        Self {
            cron: cron.cloned(),
            metadata: super::slim(volume.metadata, Labels::Dropped, &[]),
            phase: status.phase.unwrap_or_default(),
            conditions: status.conditions,
            unfinished,
        }
    }
}

impl DataVolume {
    /// A sentence about a failed import, with its cause if that is known.
    pub(crate) fn failure(&self, name: &str) -> String {
        let running = conditions::find(&self.conditions, &DataVolumeConditionType::Running);
        let cause = running.map(Condition::message);
        match cause.filter(|cause| !cause.is_empty()) {
            Some(cause) => format!("data volume {name} has failed: {cause}"),
            None => format!("data volume {name} has failed"),
        }
    }
}

reconcile::resource_view!(DataVolume, WholeDataVolume, NamespaceResourceScope);
