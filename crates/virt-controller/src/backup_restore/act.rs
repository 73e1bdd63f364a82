//! Carries out a step, and writes the status.

use error_chain::error_chain;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, ResourceExt as _};
use kubevirt_api::backup_restore::{
    MarkState, RestorePhase as Phase, TargetPolicy, VirtualMachineBackupRestore as Restore,
};
use kubevirt_api::{annotations, finalizers};
use reasons::Reason;
use reconcile::{EventType, Key, WriteError, apply_reported, create, delete, merge};
use serde_json::{Value, json};

use super::disk::Disk;
use super::observe::Observed;
use super::plan::{Progress, Step};
use super::{Controller, RestoreError, claims, status};
use crate::MANAGER;
use crate::data_volume::{ImporterPod, InspectInput, RestoreInput, render_inspect, render_restore};
use crate::operation::{set_finalizers, status_fragment};
use crate::view::Claim;

/// The name of the pod that inspects the backup: derived from the UID, as that of a data volume's pod.
pub(super) fn inspector_name(uid: &str) -> String {
    format!("backup-inspect-{uid}")
}

pub(super) fn pod_name(uid: &str, index: usize) -> String {
    format!("backup-restore-{uid}-{index}")
}

fn failed(tried: &'static str) -> impl Fn(WriteError) -> RestoreError {
    move |source| RestoreError::Write { tried, source }
}

impl Controller {
    /// Returns the restore if it was changed.
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        step: Step,
    ) -> Result<Option<Restore>, RestoreError> {
        let disk = |index: usize| observed.disks.get(index);
        let mut after = None;
        match step {
            Step::AddFinalizer => {
                let mut all = finalizers_of(observed, |_| true);
                all.push(finalizers::BACKUP_RESTORE.to_owned());
                after = Some(self.set_finalizers(key, observed, &all).await?);
            }
            Step::RemoveFinalizer => {
                let all = finalizers_of(observed, |one| one != finalizers::BACKUP_RESTORE);
                self.set_finalizers(key, observed, &all).await?;
            }
            Step::CreateInspector => self.create_inspector(key, observed).await?,
            Step::DeleteInspector => self.delete_pod(observed.inspector.as_deref()).await?,
            Step::CreateClaim(index) => {
                if let Some(disk) = disk(index) {
                    self.create_claim(key, observed, disk).await?;
                }
            }
            Step::Reserve(index) => {
                let state = MarkState::Reserved;
                self.mark(key, observed, disk(index), Some(state)).await?;
            }
            Step::Mark(index) => {
                let state = MarkState::Writing;
                self.mark(key, observed, disk(index), Some(state)).await?;
            }
            Step::Release(index) => self.mark(key, observed, disk(index), None).await?,
            Step::CreatePod(index) => {
                if let Some(disk) = disk(index) {
                    self.create_pod(key, observed, (index, disk)).await?;
                }
            }
            Step::DeletePod(index) => {
                let pod = disk(index).and_then(|disk| disk.pod.as_deref());
                self.delete_pod(pod).await?;
            }
            Step::Finish(index) => {
                let state = MarkState::Done;
                self.mark(key, observed, disk(index), Some(state)).await?;
            }
        }
        failpoints::after(name(step));
        Ok(after)
    }

    async fn set_finalizers(
        &self,
        key: &Key,
        observed: &Observed,
        all: &[String],
    ) -> Result<Restore, RestoreError> {
        let api = Api::<Restore>::namespaced(self.client.clone(), &key.namespace);
        let metadata = &observed.restore.metadata;
        let written = set_finalizers(&api, key, metadata, all).await;
        let written = written.map_err(failed("change the finalizers"))?;
        self.restores.wrote(&observed.restore, written.clone());
        Ok(written)
    }

    async fn create_inspector(&self, key: &Key, observed: &Observed) -> Result<(), RestoreError> {
        let restore = observed.restore.as_ref();
        let name = inspector_name(observed.uid());
        let volumes = restore.spec.volumes.iter();
        let input = InspectInput {
            name: name.clone(),
            namespace: key.namespace.clone(),
            owner: claims::owner(restore),
            source: observed.source_claim().cloned().unwrap_or_default(),
            directory: observed.directory().unwrap_or_default(),
            volumes: volumes.map(|one| one.name.as_str()).collect(),
            // Else a bad file of one volume shows when others have lost their old disks.
            verifies: observed.overwrites(),
            restarts: observed.restarts(),
            settings: &self.launcher,
        };
        self.create(
            &Key::new(key.namespace.as_str(), name),
            &render_inspect(input),
        )
        .await
    }

    async fn create(
        &self,
        at: &Key,
        pod: &k8s_openapi::api::core::v1::Pod,
    ) -> Result<(), RestoreError> {
        let api = Api::<ImporterPod>::namespaced(self.client.clone(), &at.namespace);
        match create(&api, MANAGER, at, pod).await {
            // Of an earlier reconcile: the watch will deliver it.
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(failed("create a pod")(error)),
        }
    }

    async fn create_claim(
        &self,
        key: &Key,
        observed: &Observed,
        disk: &Disk,
    ) -> Result<(), RestoreError> {
        let Some(body) = claims::render(&observed.restore, &disk.volume) else {
            return Ok(());
        };
        let at = Key::new(key.namespace.as_str(), disk.volume.claim_name.as_str());
        let api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &key.namespace);
        match create(&api, MANAGER, &at, &body).await {
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(failed("create a claim")(error)),
        }
    }

    /// Writes the mark of a claim, unless the claim has changed since it was observed; `None` removes it. A claim
    /// with a complete disk does not belong to the restore any more.
    async fn mark(
        &self,
        key: &Key,
        observed: &Observed,
        disk: Option<&Disk>,
        state: Option<MarkState>,
    ) -> Result<(), RestoreError> {
        let found = disk.and_then(|disk| Some((disk, disk.claim.as_deref()?)));
        let Some((disk, claim)) = found else {
            return Ok(());
        };
        let verified = disk.report().and_then(|report| report.verified);
        let verified = verified.filter(|_| state == Some(MarkState::Done));
        let text = state.map(|state| claims::mark(&observed.restore, state, verified));
        let mut metadata = json!({
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {annotations::BACKUP_RESTORE: text},
        });
        if state == Some(MarkState::Done) {
            let owners = claim.owner_references().iter();
            let others: Vec<Value> = owners
                .filter(|owner| owner.uid != observed.uid())
                .map(|owner| json!(owner))
                .collect();
            metadata["ownerReferences"] = json!(others);
        }
        let at = Key::new(key.namespace.as_str(), claim.name_any());
        let api = Api::<Claim>::namespaced(self.client.clone(), &key.namespace);
        let body = json!({"metadata": metadata});
        match merge(&api, MANAGER, &at, &body).await {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("mark a claim")(error)),
        }
    }

    async fn create_pod(
        &self,
        key: &Key,
        observed: &Observed,
        (index, disk): (usize, &Disk),
    ) -> Result<(), RestoreError> {
        let Some(claim) = disk.claim.as_deref() else {
            return Ok(());
        };
        let restore = observed.restore.as_ref();
        let in_backup = claims::bytes(&disk.volume);
        let template = claims::template(restore, &disk.volume.name);
        let size = match restore.spec.target_policy {
            Some(TargetPolicy::Overwrite) => in_backup,
            _ => claims::disk_bytes(&template, in_backup).unwrap_or(in_backup),
        };
        let name = pod_name(observed.uid(), index);
        let input = RestoreInput {
            name: name.clone(),
            namespace: key.namespace.clone(),
            owner: claims::owner(restore),
            claim,
            size,
            source: observed.source_claim().cloned().unwrap_or_default(),
            directory: observed.directory().unwrap_or_default(),
            volume: &disk.volume.name,
            restarts: disk.volume.restarts.unwrap_or_default(),
            settings: &self.launcher,
        };
        self.create(
            &Key::new(key.namespace.as_str(), name),
            &render_restore(&input),
        )
        .await
    }

    async fn delete_pod(&self, pod: Option<&ImporterPod>) -> Result<(), RestoreError> {
        let Some(pod) = pod else {
            return Ok(());
        };
        let at = Key::of(pod);
        let api = Api::<ImporterPod>::namespaced(self.client.clone(), &at.namespace);
        let deleted = delete(&api, &at, &pod.uid().unwrap_or_default(), None).await;
        deleted.map_err(failed("delete a pod"))
    }

    /// Says why a step cannot be done. The end of a restore stays as it was reported.
    pub(super) async fn write_failure(
        &self,
        key: &Key,
        observed: &Observed,
        error: &RestoreError,
    ) -> Result<(), RestoreError> {
        match failure(&observed.restore, error) {
            Some(progress) => self.write_status(key, observed, &progress).await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns the restore if its status has changed.
    pub(super) async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        progress: &Progress,
    ) -> Result<Option<Restore>, RestoreError> {
        let restore = observed.restore.as_ref();
        let status = status::render(observed, progress);
        let before = restore.status.as_ref();
        let Some(fragment) = status_fragment(restore, before, key, &status) else {
            return Ok(None);
        };
        let api = Api::<Restore>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, &fragment, restore, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/backup-restore/write-status");
                self.restores.wrote(restore, written.clone());
                self.publish(restore, progress);
                Ok(Some(written))
            }
            Err(WriteError::NotFound { .. }) => Ok(None),
            Err(error) => Err(RestoreError::Status(error)),
        }
    }

    /// The event of an end that has just been written.
    fn publish(&self, restore: &Restore, progress: &Progress) {
        let (kind, reason, note) = match progress {
            Progress::Complete(volumes) => {
                let claims = volumes.iter().map(|one| one.claim_name.as_str());
                let claims: Vec<&str> = claims.collect();
                let note = format!("the disks are complete: {}", claims.join(", "));
                let reason = Reason::VirtualMachineBackupRestoreComplete;
                (EventType::Normal, reason, note)
            }
            Progress::Failed(_, message) => {
                let reason = Reason::VirtualMachineBackupRestoreFailed;
                (EventType::Warning, reason, reason.advise(message))
            }
            _ => return,
        };
        self.recorder.publish(restore, kind, reason, note);
    }
}

/// What users see of a step that failed.
pub(super) fn failure(restore: &Restore, error: &RestoreError) -> Option<Progress> {
    let RestoreError::Write { source, .. } = error else {
        return None;
    };
    // Of these, the cache is behind.
    let is_outdated = matches!(
        source,
        WriteError::Conflict { .. }
            | WriteError::NotFound { .. }
            | WriteError::AlreadyExists { .. }
    );
    if is_outdated || status::is_finished(restore) {
        return None;
    }
    let known = restore.status.as_ref();
    let phase = known.and_then(|status| status.phase.clone());
    Some(Progress::Waits {
        phase: phase.unwrap_or(Phase::Pending),
        reason: Reason::BackupRestoreWaits,
        message: error_chain(error),
    })
}

fn finalizers_of(observed: &Observed, is_kept: impl Fn(&str) -> bool) -> Vec<String> {
    let all = observed.restore.metadata.finalizers.iter().flatten();
    all.filter(|one| is_kept(one)).cloned().collect()
}

fn name(step: Step) -> &'static str {
    match step {
        Step::AddFinalizer => "virt-controller/backup-restore/add-finalizer",
        Step::RemoveFinalizer => "virt-controller/backup-restore/remove-finalizer",
        Step::CreateInspector => "virt-controller/backup-restore/create-inspector",
        Step::DeleteInspector => "virt-controller/backup-restore/delete-inspector",
        Step::CreateClaim(_) => "virt-controller/backup-restore/create-claim",
        Step::Reserve(_) => "virt-controller/backup-restore/reserve-claim",
        Step::Release(_) => "virt-controller/backup-restore/release-claim",
        Step::Mark(_) => "virt-controller/backup-restore/mark-claim",
        Step::CreatePod(_) => "virt-controller/backup-restore/create-pod",
        Step::DeletePod(_) => "virt-controller/backup-restore/delete-pod",
        Step::Finish(_) => "virt-controller/backup-restore/finish-claim",
    }
}
