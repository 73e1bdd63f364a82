//! Carries out a step, and writes the status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kubevirt_api::backup::{
    BackupMode, QuiesceStatus, VirtualMachineBackup, VirtualMachineBackupTracker,
};
use kubevirt_api::export::VirtualMachineExport;
use kubevirt_api::vmi::{UtilityVolume, UtilityVolumeType};
use kubevirt_api::{annotations, finalizers};
use model::backup_directory;
use reasons::Reason;
use reconcile::{EventType, Key, WriteError, apply_reported, create, delete, merge, merge_status};
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::{Plan, Progress, Step};
use super::{BackupError, Controller, pull, status};
use crate::MANAGER;
use crate::operation::{set_finalizers, status_fragment};
use crate::view::Guest;

fn update(tried: &'static str) -> impl Fn(WriteError) -> BackupError {
    move |source| BackupError::Update { tried, source }
}

impl Controller {
    /// Returns the backup if it was changed.
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        step: Step,
    ) -> Result<Option<VirtualMachineBackup>, BackupError> {
        let after = match step {
            Step::AddFinalizer => {
                let mut all = finalizers_of(observed, |_| true);
                all.push(finalizers::BACKUP.to_owned());
                Some(self.set_finalizers(key, observed, &all).await?)
            }
            Step::RemoveFinalizer => {
                let all = finalizers_of(observed, |one| one != finalizers::BACKUP);
                Some(self.set_finalizers(key, observed, &all).await?)
            }
            Step::Attach => {
                let body = json!({"spec": {"utilityVolumes": with_target(observed)}});
                self.patch_guest(observed, body, "attach the claim").await?;
                None
            }
            Step::Begin => {
                self.patch_guest(observed, begin_patch(observed), "begin the copy")
                    .await?;
                None
            }
            Step::Track => {
                self.track(observed).await?;
                None
            }
            Step::Offer => {
                let exports = self.exports_of(key);
                match create(&exports, MANAGER, key, &pull::export(observed)).await {
                    Ok(_) | Err(WriteError::AlreadyExists { .. }) => None,
                    Err(error) => return Err(BackupError::Offer(error)),
                }
            }
            Step::Withdraw => {
                if let Some(export) = observed.offer() {
                    let uid = export.metadata.uid.as_deref().unwrap_or_default();
                    let deleted = delete(&self.exports_of(key), key, uid, None).await;
                    deleted.map_err(BackupError::Withdraw)?;
                }
                None
            }
            Step::Detach => {
                let body = json!({"spec": {"utilityVolumes": without_target(observed)}});
                self.patch_guest(observed, body, "detach the claim").await?;
                if !observed.is_finished() && observed.backup.metadata.deletion_timestamp.is_some()
                {
                    let reason = Reason::VirtualMachineBackupAborting;
                    let note = "the backup was deleted before its end".to_owned();
                    self.publish(observed, EventType::Normal, reason, note);
                }
                None
            }
            Step::Forget => {
                self.patch_guest(observed, forget_patch(observed), "forget the backup")
                    .await?;
                None
            }
        };
        failpoints::after(name(step));
        Ok(after)
    }

    fn exports_of(&self, key: &Key) -> Api<VirtualMachineExport> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn api(&self, key: &Key) -> Api<VirtualMachineBackup> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn set_finalizers(
        &self,
        key: &Key,
        observed: &Observed,
        all: &[String],
    ) -> Result<VirtualMachineBackup, BackupError> {
        let metadata = &observed.backup.metadata;
        let written = set_finalizers(&self.api(key), key, metadata, all).await;
        let written = written.map_err(update("change the finalizers"))?;
        self.backups.wrote(&observed.backup, written.clone());
        Ok(written)
    }

    /// Changes the VMI, unless it has changed since it was observed.
    async fn patch_guest(
        &self,
        observed: &Observed,
        mut body: Value,
        tried: &'static str,
    ) -> Result<(), BackupError> {
        let Some(guest) = &observed.guest else {
            return Ok(());
        };
        let key = Key::of(guest.as_ref());
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        body["metadata"]["resourceVersion"] = json!(guest.metadata.resource_version);
        match merge(&api, MANAGER, &key, &body).await {
            Ok(written) => {
                self.vmis.wrote(guest, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(update(tried)(error)),
        }
    }

    /// Gives the tracker the checkpoint of the backup, unless it has changed since it was observed.
    async fn track(&self, observed: &Observed) -> Result<(), BackupError> {
        let (Some(tracker), Some(checkpoint)) = (&observed.tracker, observed.new_checkpoint())
        else {
            return Ok(());
        };
        let key = Key::of(tracker.as_ref());
        let api =
            Api::<VirtualMachineBackupTracker>::namespaced(self.client.clone(), &key.namespace);
        let body = json!({
            "metadata": {"resourceVersion": tracker.metadata.resource_version},
            "status": {"latestCheckpoint": checkpoint},
        });
        match merge_status(&api, MANAGER, &key, &body).await {
            Ok(written) => {
                self.trackers.wrote(tracker, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(update("record the checkpoint")(error)),
        }
    }

    /// Returns the backup if its status has changed.
    pub(super) async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<Option<VirtualMachineBackup>, BackupError> {
        let backup = observed.backup.as_ref();
        let status = status::render(observed, &plan.progress);
        let Some(fragment) = status_fragment(backup, backup.status.as_ref(), key, &status) else {
            return Ok(None);
        };
        match apply_reported(&self.api(key), &fragment, backup, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/backup/write-status");
                self.backups.wrote(backup, written.clone());
                self.publish_progress(observed, &plan.progress, &status);
                Ok(Some(written))
            }
            Err(WriteError::NotFound { .. }) => Ok(None),
            Err(error) => Err(BackupError::Status(error)),
        }
    }

    /// Events of a status that has just been written.
    fn publish_progress(
        &self,
        observed: &Observed,
        progress: &Progress,
        status: &kubevirt_api::backup::VirtualMachineBackupStatus,
    ) {
        let normal = EventType::Normal;
        match progress {
            Progress::Complete => {
                let mut all = status.conditions.iter();
                let is_warned = all.any(|one| one.reason == Reason::CompletedWithWarning.as_str());
                let (kind, reason) = if is_warned {
                    let reason = Reason::VirtualMachineBackupCompletedWithWarning;
                    (EventType::Warning, reason)
                } else {
                    (normal, Reason::VirtualMachineBackupCompletedSuccessfully)
                };
                let note = if observed.is_pull() {
                    "the disks are not offered any more".to_owned()
                } else {
                    format!("claim {} has the backup", observed.claim())
                };
                self.publish(observed, kind, reason, reason.advise(&note));
            }
            Progress::Failed(_, message) => {
                let reason = Reason::VirtualMachineBackupFailed;
                let note = reason.advise(message);
                self.publish(observed, EventType::Warning, reason, note);
            }
            Progress::Kept
            | Progress::Waits(_)
            | Progress::Copying(_)
            | Progress::Leaving
            | Progress::Offering(_)
            | Progress::Offered
            | Progress::Expired
            | Progress::Aborting => {}
        }
    }

    fn publish(&self, observed: &Observed, kind: EventType, reason: Reason, note: String) {
        self.recorder
            .publish(observed.backup.as_ref(), kind, reason, note);
    }
}

fn finalizers_of(observed: &Observed, is_kept: impl Fn(&str) -> bool) -> Vec<String> {
    let all = observed.backup.metadata.finalizers.iter().flatten();
    all.filter(|one| is_kept(one)).cloned().collect()
}

fn without_target(observed: &Observed) -> Vec<UtilityVolume> {
    let name = observed.volume();
    let all = observed.guest.iter().flat_map(|one| &one.utility_volumes);
    all.filter(|one| one.name != name).cloned().collect()
}

fn with_target(observed: &Observed) -> Vec<UtilityVolume> {
    let mut all = without_target(observed);
    all.push(UtilityVolume {
        name: observed.volume(),
        claim_name: observed.claim().to_owned(),
        read_only: None,
        type_: Some(UtilityVolumeType::Backup),
    });
    all
}

fn tracking_state(observed: &Observed) -> &str {
    let guest = observed.guest.as_ref();
    guest.map_or("", |guest| guest.status.tracking.as_str())
}

/// A merge patch keeps what it lacks: what is left of an earlier backup has to go.
pub(super) fn begin_patch(observed: &Observed) -> Value {
    let skips = observed.backup.spec.skip_quiesce == Some(true);
    let quiesce = skips.then_some(QuiesceStatus::Skipped);
    let now = observed.now;
    let start = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    // The checkpoint to build on, or that of the backup itself.
    let own = || backup_directory(observed.name(), &start);
    let is_tracked = observed.is_tracked() && !observed.is_pull();
    let checkpoint = is_tracked.then(|| observed.parent().map_or_else(own, str::to_owned));
    let kept = is_tracked.then(|| observed.kept_checkpoints.join(","));
    let mode = observed.is_pull().then(|| BackupMode::Pull.as_str());
    let annotations = json!({
        annotations::BACKUP_MODE: mode,
        annotations::KEPT_CHECKPOINTS: kept,
        annotations::REQUESTED_CHECKPOINT: checkpoint,
    });
    json!({"metadata": {"annotations": annotations}, "status": {"changedBlockTracking": {
        "state": tracking_state(observed),
        "backupStatus": {
            "backupName": observed.name(),
            "startTimestamp": start,
            "quiesceStatus": quiesce,
            "endTimestamp": null,
            "completed": null,
            "failed": null,
            "backupMsg": null,
            "checkpointName": null,
            "volumes": null,
        },
    }}})
}

pub(super) fn forget_patch(observed: &Observed) -> Value {
    let tracking = if tracking_state(observed).is_empty() {
        Value::Null
    } else {
        json!({"backupStatus": null})
    };
    let annotations = json!({
        annotations::BACKUP_MODE: null,
        annotations::KEPT_CHECKPOINTS: null,
        annotations::REQUESTED_CHECKPOINT: null,
    });
    json!({"metadata": {"annotations": annotations}, "status": {"changedBlockTracking": tracking}})
}

fn name(step: Step) -> &'static str {
    match step {
        Step::AddFinalizer => "virt-controller/backup/add-finalizer",
        Step::Attach => "virt-controller/backup/attach",
        Step::Begin => "virt-controller/backup/begin",
        Step::Track => "virt-controller/backup/track",
        Step::Offer => "virt-controller/backup/offer",
        Step::Withdraw => "virt-controller/backup/withdraw",
        Step::Detach => "virt-controller/backup/detach",
        Step::Forget => "virt-controller/backup/forget",
        Step::RemoveFinalizer => "virt-controller/backup/remove-finalizer",
    }
}
