//! Backups of the guest's disks into a volume that the guest does not have.
//!
//! virt-controller writes into the VMI's status which backup is to be made, once its volume is in the guest's
//! pod; the launcher has it made. The directory follows from the name of the backup and from its start: after a
//! restart of this process the same backup goes on.
//!
//! **Invariant**: a volume leaves the guest's pod only when nothing writes to it any more, and with no file of a
//! backup that was not completed.

use error_chain::error_chain;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    backup::QuiesceStatus,
    vmi_status::{
        VirtualMachineInstanceBackupStatus as Status, VirtualMachineInstanceBackupVolumeInfo,
        VirtualMachineInstanceStatus,
    },
};
use launcher_channel::{
    BackupPlan, BackupReport, BackupStage, GuestState, Lineage, Quiesce, Request,
};
use model::{
    Guest, backed_up_volumes, backup_directory, backup_volume, kept_checkpoints, last_backup,
    offers_disks, requested_checkpoint,
};
use reasons::Reason;

use super::{
    plug::{BringError, Pass},
    plugged::{self, Failure, Plugged},
};

/// The reason if the target is also a disk of the guest.
const OWN_CLAIM: &str = "the claim is also a volume of the guest; name another one";

/// The reason if a name would lead out of the volume.
const BAD_NAMES: &str = "the names of the backup are not file names; make it under another name";

const OFFERED: &str = "the disks are offered as they were when the backup began";
const OFFER_ENDED: &str = "the disks are not offered any more";

const OLD_LAUNCHER: &str =
    "the guest's launcher is of an earlier version; restart or migrate the VM";

impl Pass<'_> {
    /// Brings the volume, and once the status names the backup, has the launcher make it.
    pub(super) async fn back_up(&self, volume: &str, next: &mut Plugged) -> Result<(), BringError> {
        self.mount(volume).await?;
        next.mounted.insert(volume.to_owned());
        let Some(status) = begun(self.vmi, volume) else {
            return Ok(());
        };
        // Without the launcher's state it is unknown whether the backup is made already.
        let Some(state) = &self.link.state else {
            next.retry_in.get_or_insert(plugged::RETRY);
            return Ok(());
        };
        if is_own_claim(self.vmi, volume) || !takes(self.vmi, state) {
            return Ok(());
        }
        let plan = plan(self.vmi, volume, status, state);
        if report_of(state, &plan).is_some() {
            return Ok(());
        }
        if plan.path().is_none() {
            let failure = Failure {
                reason: Reason::BackupInProgress,
                message: BAD_NAMES.to_owned(),
            };
            next.failures.insert(volume.to_owned(), failure);
            return Ok(());
        }
        let directory = plan.directory.clone();
        self.on_storage(volume, move |plugs, volume| {
            plugs.prepare_backup(volume, &directory)
        })
        .await?;
        if let Err(error) = self.entry.session.call(Request::Backup(plan)).await {
            let failure = Failure {
                reason: Reason::BackupInProgress,
                message: error_chain(&error),
            };
            next.failures.insert(volume.to_owned(), failure);
            next.retry_in.get_or_insert(plugged::RETRY);
        }
        Ok(())
    }

    /// Cancels a backup to a volume that is to leave, and removes its files; returns whether nothing is left
    /// to do.
    pub(super) async fn end_backup(&self, volume: &str, next: &mut Plugged) -> bool {
        let status = last_backup(self.vmi).filter(|status| is_to(status, volume));
        // It was made, or was never begun.
        let is_offer = offers_disks(self.vmi);
        let Some(status) = status.filter(|status| is_offer || !has_succeeded(status)) else {
            return true;
        };
        let Some(state) = &self.link.state else {
            return false;
        };
        let plan = plan(self.vmi, volume, status, state);
        if plan.path().is_none() || !takes(self.vmi, state) {
            return true;
        }
        match report_of(state, &plan).map(|report| &report.stage) {
            // Its end is not in the status yet: another end may follow.
            Some(BackupStage::Done { .. }) if status.completed != Some(true) => return false,
            Some(BackupStage::Done { .. } | BackupStage::Failed(_) | BackupStage::Cancelled) => {}
            Some(BackupStage::Running { .. } | BackupStage::Offered) | None => {
                if let Err(error) = self.entry.session.call(Request::CancelBackup(plan)).await {
                    let failure = Failure {
                        reason: Reason::VolumeNotUnmounted,
                        message: error_chain(&error),
                    };
                    next.failures.insert(volume.to_owned(), failure);
                }
                return false;
            }
        }
        let directory = plan.directory;
        let removed = self.on_storage(volume, move |plugs, volume| {
            plugs.remove_backup(volume, &directory)
        });
        if let Err(error) = removed.await {
            tracing::warn!(volume, %error, "failed to remove the files of a backup");
        }
        true
    }
}

/// Sets the progress and the end of a backup.
pub(super) fn advance(
    vmi: &VirtualMachineInstance,
    next: &mut VirtualMachineInstanceStatus,
    plugged: &Plugged,
    state: Option<&GuestState>,
    now: &Time,
) {
    let tracking = next.changed_block_tracking.as_mut();
    let status = tracking.and_then(|tracking| tracking.backup_status.as_mut());
    let Some(status) = status.filter(|status| status.completed != Some(true)) else {
        return;
    };
    let volume = backup_volume(status.backup_name.as_deref().unwrap_or_default());
    if is_own_claim(vmi, &volume) {
        end(status, Err(OWN_CLAIM), now);
        return;
    }
    let Some(state) = state else {
        return;
    };
    if !takes(vmi, state) {
        end(status, Err(OLD_LAUNCHER), now);
        return;
    }
    let plan = plan(vmi, &volume, status, state);
    let Some(report) = report_of(state, &plan) else {
        if let Some(failure) = plugged.failures.get(&volume) {
            status.backup_msg = Some(failure.message.clone());
        }
        return;
    };
    // Before the end, or an offer, the field is the request.
    if let Some(quiesce) = &report.quiesce
        && !matches!(report.stage, BackupStage::Running { .. })
    {
        status.quiesce_status = Some(quiesce_status(quiesce).as_str().to_owned());
    }
    match &report.stage {
        BackupStage::Running { percent } => {
            let copied = (*percent > 0).then(|| format!("{percent} % of the data is copied"));
            let parts: Vec<String> = copied.into_iter().chain(report.detail.clone()).collect();
            status.backup_msg = (!parts.is_empty()).then(|| parts.join("; "));
        }
        BackupStage::Offered => {
            status.volumes = volumes(&report.plan);
            let mut message = OFFERED.to_owned();
            note_quiesce(report.quiesce.as_ref(), &mut message);
            status.backup_msg = Some(message);
        }
        BackupStage::Done { bytes, lineage } => {
            let is_tracked = requested_checkpoint(vmi).is_some();
            status.checkpoint_name = checkpoint(lineage, &report.plan.directory);
            status.volumes = volumes(&report.plan);
            let mut message = format!(
                "directory {} (files: {}, bytes: {bytes})",
                report.plan.directory,
                report.plan.disks.len()
            );
            if let Some(parent) = &lineage.parent {
                message.push_str(", changes since ");
                message.push_str(parent);
            }
            let disks: Vec<_> = report.plan.disks.iter().map(String::as_str).collect();
            let shared = shared_disk(vmi, &disks).filter(|_| is_tracked);
            if let Some(shared) = shared {
                message.push_str(
                    "; the next backup will copy all blocks: other guests may change disk ",
                );
                message.push_str(shared);
            }
            if let Some(note) = &lineage.note {
                message.push_str("; ");
                message.push_str(note);
            }
            note_quiesce(report.quiesce.as_ref(), &mut message);
            end(status, Ok(message), now);
        }
        BackupStage::Failed(why) => end(status, Err(why), now),
        // Only a cancellation ends an offer well.
        BackupStage::Cancelled if plan.is_offer && !status.volumes.is_empty() => {
            end(status, Ok(OFFER_ENDED.to_owned()), now);
        }
        BackupStage::Cancelled => end(status, Err("the backup was cancelled"), now),
    }
}

/// Whether the launcher can do what is requested.
fn takes(vmi: &VirtualMachineInstance, state: &GuestState) -> bool {
    state.takes_backups && (state.offers_disks || !offers_disks(vmi))
}

fn volumes(plan: &BackupPlan) -> Vec<VirtualMachineInstanceBackupVolumeInfo> {
    let info = |volume: &String| VirtualMachineInstanceBackupVolumeInfo {
        volume_name: volume.clone(),
    };
    plan.disks.iter().map(info).collect()
}

fn note_quiesce(quiesce: Option<&Quiesce>, message: &mut String) {
    if let Some(Quiesce::Failed(why) | Quiesce::Skipped(why)) = quiesce {
        message.push_str("; the guest did not write its caches to disk first: ");
        message.push_str(why);
    }
}

/// What the status says at the end: the checkpoint that an increment builds on, that of a full backup itself, or
/// none if no backup can build on it.
fn checkpoint(lineage: &Lineage, directory: &str) -> Option<String> {
    let own = lineage.has_checkpoint.then(|| directory.to_owned());
    own.map(|own| lineage.parent.clone().unwrap_or(own))
}

fn end(status: &mut Status, result: Result<String, &str>, now: &Time) {
    status.completed = Some(true);
    status.failed = result.is_err().then_some(true);
    status.backup_msg = Some(result.unwrap_or_else(str::to_owned));
    let whole = Timestamp::from_second(now.0.as_second()).unwrap_or(now.0);
    status.end_timestamp = Some(Time(whole));
}

fn quiesce_status(quiesce: &Quiesce) -> QuiesceStatus {
    match quiesce {
        Quiesce::Succeeded => QuiesceStatus::Succeeded,
        Quiesce::Failed(_) => QuiesceStatus::Failed,
        Quiesce::Skipped(_) => QuiesceStatus::Skipped,
    }
}

/// The backup that is to be made to the volume.
fn begun<'a>(vmi: &'a VirtualMachineInstance, volume: &str) -> Option<&'a Status> {
    let status = last_backup(vmi).filter(|status| is_to(status, volume))?;
    (status.completed != Some(true)).then_some(status)
}

fn is_to(status: &Status, volume: &str) -> bool {
    let name = status.backup_name.as_deref().unwrap_or_default();
    backup_volume(name) == volume
}

fn has_succeeded(status: &Status) -> bool {
    status.completed == Some(true) && status.failed != Some(true)
}

fn plan(
    vmi: &VirtualMachineInstance,
    volume: &str,
    status: &Status,
    state: &GuestState,
) -> BackupPlan {
    let start = status.start_timestamp.clone();
    let start = start.unwrap_or(Time(Timestamp::UNIX_EPOCH));
    let name = status.backup_name.as_deref().unwrap_or_default();
    let disks = backed_up_volumes(&Guest::of(vmi), |volume| state.disks.contains_key(volume));
    let directory = backup_directory(name, &start);
    let checkpoint = requested_checkpoint(vmi).map(str::to_owned);
    let is_offer = offers_disks(vmi);
    let checkpoint = checkpoint.filter(|_| !is_offer && shared_disk(vmi, &disks).is_none());
    BackupPlan {
        volume: volume.to_owned(),
        leaves_checkpoint: checkpoint.is_some(),
        parent: checkpoint.filter(|name| *name != directory),
        kept_checkpoints: kept_checkpoints(vmi),
        directory,
        disks: disks.into_iter().map(str::to_owned).collect(),
        quiesces: status.quiesce_status.as_deref() != Some(QuiesceStatus::Skipped.as_str()),
        is_offer,
    }
}

/// A disk that other guests write to: QEMU does not see what they change.
fn shared_disk<'a>(vmi: &VirtualMachineInstance, disks: &[&'a str]) -> Option<&'a str> {
    let all = &vmi.spec.domain.devices.disks;
    let is_shared = |name: &str| {
        let mut all = all.iter();
        all.any(|disk| disk.name == name && disk.shareable == Some(true))
    };
    disks.iter().copied().find(|name| is_shared(name))
}

fn report_of<'a>(state: &'a GuestState, plan: &BackupPlan) -> Option<&'a BackupReport> {
    let report = state.backup.as_deref();
    report.filter(|report| report.is_of(plan))
}

/// Whether the target of a backup is a volume of the guest, which the copy would overwrite or fill.
fn is_own_claim(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let mut targets = vmi.spec.utility_volumes.iter();
    let Some(target) = targets.find(|one| one.name == volume) else {
        return false;
    };
    let guest = Guest::of(vmi);
    let mut claims = guest.volumes.iter();
    claims.any(|one| one.source.plugged_claim() == Some(target.claim_name.as_str()))
}

#[cfg(test)]
mod tests {
    use kubevirt_api::annotations;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-11-27T03:00:10Z";
    const DIRECTORY: &str = "b-20261127-030000";

    fn vmi(claim: &str, status: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}],
                "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
                "utilityVolumes": [{"name": backup_volume("b"), "claimName": claim, "type": "Backup"}],
            },
            "status": {
                "phase": "Running",
                "volumeStatus": [{
                    "name": backup_volume("b"), "target": "", "phase": "MountedToPod", "hotplugVolume": {},
                }],
                "changedBlockTracking": {"state": "", "backupStatus": status},
            },
        }))
        .unwrap()
    }

    fn requested() -> Value {
        json!({"backupName": "b", "startTimestamp": "2026-11-27T03:00:00Z"})
    }

    fn state(directory: &str, stage: BackupStage, quiesce: Quiesce) -> GuestState {
        let plan = BackupPlan {
            volume: backup_volume("b"),
            directory: directory.to_owned(),
            disks: vec!["root".to_owned()],
            quiesces: true,
            ..BackupPlan::default()
        };
        let report = BackupReport {
            plan,
            stage,
            quiesce: Some(quiesce),
            detail: None,
        };
        GuestState {
            backup: Some(Box::new(report)),
            takes_backups: true,
            ..GuestState::default()
        }
    }

    fn next(vmi: &VirtualMachineInstance, state: &GuestState) -> Value {
        let mut status = vmi.status.clone().unwrap();
        let now = Time(NOW.parse().unwrap());
        advance(vmi, &mut status, &Plugged::default(), Some(state), &now);
        json!(status.changed_block_tracking.unwrap().backup_status)
    }

    #[test]
    fn status_follows_the_launcher() {
        let before = vmi("c", &requested());
        let wanted = plugged::wanted(&before);
        assert_eq!(
            wanted[backup_volume("b").as_str()],
            plugged::Wanted::BackedUp
        );
        let own = |stage| state(DIRECTORY, stage, Quiesce::Succeeded);
        let running = |percent| own(BackupStage::Running { percent });
        let idle = GuestState {
            takes_backups: true,
            ..GuestState::default()
        };
        assert_eq!(next(&before, &idle), requested());
        // An earlier backup of the same name.
        let done = || BackupStage::Done {
            bytes: 7,
            lineage: Lineage::default(),
        };
        let old = state("b-20261126-030000", done(), Quiesce::Succeeded);
        assert_eq!(next(&before, &old), requested());
        let found = next(&before, &running(30));
        assert_eq!(found["backupMsg"], "30 % of the data is copied");
        assert_eq!(found["quiesceStatus"], Value::Null);
        assert_eq!(found["completed"], Value::Null);
        for (percent, expected) in [
            (0, "it began again"),
            (30, "30 % of the data is copied; it began again"),
        ] {
            let mut again = running(percent);
            again.backup.as_mut().unwrap().detail = Some("it began again".to_owned());
            assert_eq!(next(&before, &again)["backupMsg"], expected);
        }

        let found = next(&before, &own(done()));
        let expected = json!({
            "backupName": "b", "startTimestamp": "2026-11-27T03:00:00Z", "endTimestamp": NOW,
            "completed": true, "quiesceStatus": "Succeeded", "volumes": [{"volumeName": "root"}],
            "backupMsg": format!("directory {DIRECTORY} (files: 1, bytes: 7)"),
        });
        assert_eq!(found, expected);
        let skipped = Quiesce::Skipped("no agent".to_owned());
        let found = next(&before, &state(DIRECTORY, done(), skipped));
        let message = found["backupMsg"].as_str().unwrap();
        assert!(message.ends_with("to disk first: no agent"), "{message}");
        for (stage, expected) in [
            (BackupStage::Failed("no space".to_owned()), "no space"),
            (BackupStage::Cancelled, "the backup was cancelled"),
        ] {
            let found = next(&before, &own(stage));
            assert_eq!(found["backupMsg"], expected);
            assert_eq!(
                (&found["completed"], &found["failed"]),
                (&json!(true), &json!(true))
            );
            // The end stays.
            let ended = vmi("c", &found);
            assert_eq!(next(&ended, &own(done())), found);
        }
    }

    /// The annotation is the request, and the field of the status the result.
    #[test]
    fn checkpoint_is_requested_and_reported() {
        let (volume, own, parent) = (backup_volume("b"), DIRECTORY, "a-20261126-030000");
        let requests = |checkpoint: &str| {
            let mut vmi = vmi("c", &requested());
            let kept = format!("x,{parent},");
            let annotations = [
                (annotations::KEPT_CHECKPOINTS, kept.as_str()),
                (annotations::REQUESTED_CHECKPOINT, checkpoint),
            ];
            let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
            vmi.metadata.annotations = Some(annotations.into());
            vmi
        };
        for (requested, expected) in [(own, None), (parent, Some(parent.to_owned()))] {
            let vmi = requests(requested);
            let status = begun(&vmi, &volume).unwrap();
            let plan = plan(&vmi, &volume, status, &GuestState::default());
            assert!(plan.leaves_checkpoint);
            assert_eq!(plan.parent, expected);
            assert_eq!(plan.kept_checkpoints, ["x", parent]);
        }
        let mut shared = requests(parent);
        shared.spec.domain.devices.disks[0].shareable = Some(true);
        let status = begun(&shared, &volume).unwrap();
        let state_of_none = GuestState::default();
        assert!(!plan(&shared, &volume, status, &state_of_none).leaves_checkpoint);
        let stage = BackupStage::Done {
            bytes: 7,
            lineage: Lineage::default(),
        };
        let found = next(&shared, &state(own, stage, Quiesce::Succeeded));
        let message = found["backupMsg"].as_str().unwrap();
        assert!(
            message.ends_with("other guests may change disk root"),
            "{message}"
        );
        assert_eq!(found["checkpointName"], Value::Null);

        let ended = |parent: Option<&str>, has_checkpoint, note: Option<&str>| {
            let lineage = Lineage {
                parent: parent.map(str::to_owned),
                has_checkpoint,
                note: note.map(str::to_owned),
            };
            let stage = BackupStage::Done { bytes: 7, lineage };
            let state = state(own, stage, Quiesce::Succeeded);
            let found = next(&requests("a-20261126-030000"), &state);
            let message = found["backupMsg"].as_str().unwrap().to_owned();
            (found["checkpointName"].clone(), message)
        };
        let whole = format!("directory {own} (files: 1, bytes: 7)");
        let (found, message) = ended(Some(parent), true, None);
        assert_eq!(found, parent);
        assert_eq!(message, format!("{whole}, changes since {parent}"));
        let (found, message) = ended(None, true, Some("why"));
        assert_eq!(found, own);
        assert_eq!(message, format!("{whole}; why"));
        assert_eq!(ended(None, false, Some("why")).0, Value::Null);
        // A request of virt-controller of an earlier version.
        let mut status = requested();
        status["checkpointName"] = json!(parent);
        let vmi = vmi("c", &status);
        let begun = begun(&vmi, &volume).unwrap();
        let plan = plan(&vmi, &volume, begun, &GuestState::default());
        assert!(!plan.leaves_checkpoint && plan.parent.is_none());
    }

    #[test]
    fn offer_has_its_volumes_until_it_is_cancelled() {
        let offered = |status: &Value| {
            let mut vmi = vmi("c", status);
            let mode = (annotations::BACKUP_MODE.to_owned(), "Pull".to_owned());
            vmi.metadata.annotations = Some([mode].into());
            vmi
        };
        let before = offered(&requested());
        let own = |stage| GuestState {
            offers_disks: true,
            ..state(DIRECTORY, stage, Quiesce::Succeeded)
        };
        let status = begun(&before, &backup_volume("b")).unwrap();
        let plan = plan(&before, &backup_volume("b"), status, &GuestState::default());
        assert!(plan.is_offer && !plan.leaves_checkpoint);
        let found = next(&before, &own(BackupStage::Offered));
        assert_eq!(found["volumes"], json!([{"volumeName": "root"}]));
        assert_eq!(found["quiesceStatus"], "Succeeded");
        assert_eq!(
            (&found["completed"], &found["backupMsg"]),
            (&Value::Null, &json!(OFFERED))
        );
        let ended = next(&offered(&found), &own(BackupStage::Cancelled));
        assert_eq!(
            (&ended["completed"], &ended["failed"]),
            (&json!(true), &Value::Null)
        );
        assert_eq!(ended["volumes"], found["volumes"]);
        // It was cancelled before a client could read.
        let ended = next(&before, &own(BackupStage::Cancelled));
        assert_eq!(ended["failed"], true);
        // It would copy the disks.
        let earlier = GuestState {
            takes_backups: true,
            ..GuestState::default()
        };
        assert_eq!(next(&before, &earlier)["backupMsg"], OLD_LAUNCHER);
    }

    #[test]
    fn launcher_of_an_earlier_version_ends_the_backup() {
        let before = vmi("c", &requested());
        let earlier: GuestState = serde_json::from_value(json!({})).unwrap();
        let found = next(&before, &earlier);
        assert_eq!(
            (&found["failed"], &found["backupMsg"]),
            (&json!(true), &json!(OLD_LAUNCHER))
        );
        // Its state is not known yet.
        let mut status = before.status.clone().unwrap();
        let now = Time(NOW.parse().unwrap());
        advance(&before, &mut status, &Plugged::default(), None, &now);
        assert_eq!(Some(status), before.status);
    }

    #[test]
    fn claim_of_the_guest_is_no_target() {
        let found = next(&vmi("root", &requested()), &GuestState::default());
        assert_eq!(found["failed"], true);
        assert_eq!(found["backupMsg"], OWN_CLAIM);
    }

    #[test]
    fn plan_has_the_disks_and_whether_the_guest_helps() {
        let volume = backup_volume("b");
        let quiesces = |quiesce: Value| {
            let mut status = requested();
            status["quiesceStatus"] = quiesce;
            let vmi = vmi("c", &status);
            let plan = plan(
                &vmi,
                &volume,
                begun(&vmi, &volume).unwrap(),
                &GuestState::default(),
            );
            assert_eq!(
                (plan.directory.as_str(), plan.disks),
                (DIRECTORY, vec!["root".to_owned()])
            );
            plan.quiesces
        };
        assert!(quiesces(Value::Null) && quiesces(json!("Succeeded")));
        assert!(!quiesces(json!("Skipped")));
        assert!(begun(&vmi("c", &requested()), "other").is_none());
    }
}
