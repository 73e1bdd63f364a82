//! Observation: everything that one step may read, through caches. What a step writes fails if its base has
//! changed.

use std::sync::Arc;

use jiff::Timestamp;
use kubevirt_api::backup::{
    BackupCheckpoint, BackupMode, BackupVolumeInfo, ConditionType as Type, VirtualMachineBackup,
    VirtualMachineBackupTracker,
};
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::export::VirtualMachineExport;
use kubevirt_api::finalizers;
use kubevirt_api::vmi_status::{VirtualMachineInstanceBackupStatus, VolumeStatus};
use launcher_pod::ClaimMode;
use model::{MAX_CHECKPOINTS, backup_directory, backup_volume};
use reasons::Reason;
use reconcile::{Key, Store};

use super::Controller;
use crate::view::Guest;

#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    pub(super) backup: Arc<VirtualMachineBackup>,
    /// The VM; `None` if it is that of a tracker that does not exist, and no guest has anything of the backup.
    pub(super) vm: Option<String>,
    /// The VMI of the VM.
    pub(super) guest: Option<Arc<Guest>>,
    pub(super) target: Target,
    /// The tracker that is the source.
    pub(super) tracker: Option<Arc<VirtualMachineBackupTracker>>,
    /// The checkpoints that the trackers of the VM need.
    pub(super) kept_checkpoints: Vec<String>,
    pub(super) export: Export,
    pub(super) now: Timestamp,
}

/// The export by whose server the disks are offered.
#[derive(Debug, Clone, Default)]
pub(super) enum Export {
    #[default]
    None,
    /// Something else has its name.
    Foreign,
    Own(Arc<VirtualMachineExport>),
}

/// The claim to write to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Target {
    #[default]
    Missing,
    FileSystem,
    BlockDevice,
}

impl Observed {
    pub(super) fn name(&self) -> &str {
        self.backup.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn claim(&self) -> &str {
        self.backup.spec.pvc_name.as_deref().unwrap_or_default()
    }

    /// The name of the volume that brings the claim to the guest's pod.
    pub(super) fn volume(&self) -> String {
        backup_volume(self.name())
    }

    /// The volume in the status of the guest.
    pub(super) fn volume_status(&self) -> Option<&VolumeStatus> {
        let name = self.volume();
        let mut all = self.guest.as_ref()?.status.volumes.iter();
        all.find(|one| one.name == name && one.hotplug_volume.is_some())
    }

    /// Whether the spec of the guest has the volume.
    pub(super) fn is_attached(&self) -> bool {
        let name = self.volume();
        let mut guest = self.guest.iter();
        guest.any(|guest| guest.utility_volumes.iter().any(|one| one.name == name))
    }

    /// What virt-handler reports about the backup.
    pub(super) fn report(&self) -> Option<&VirtualMachineInstanceBackupStatus> {
        report_of(self.guest.as_ref()?, &self.backup)
    }

    /// Whether the disks are offered to a client, not copied.
    pub(super) fn is_pull(&self) -> bool {
        self.backup.spec.mode == Some(BackupMode::Pull)
    }

    /// The export, unless it is being deleted.
    pub(super) fn offer(&self) -> Option<&Arc<VirtualMachineExport>> {
        match &self.export {
            Export::Own(export) if export.metadata.deletion_timestamp.is_none() => Some(export),
            _ => None,
        }
    }

    /// Whether the source is a tracker.
    pub(super) fn is_tracked(&self) -> bool {
        is_tracked(&self.backup)
    }

    /// The checkpoint to build on.
    pub(super) fn parent(&self) -> Option<&str> {
        if self.backup.spec.force_full_backup == Some(true) {
            return None;
        }
        latest(self.tracker.as_deref()?)?.name.as_deref()
    }

    /// The checkpoint that the backup has made, if the report has one: that of its directory. Only a virt-handler that
    /// knows checkpoints writes the field.
    pub(super) fn own_checkpoint(&self) -> Option<BackupCheckpoint> {
        let report = self
            .report()
            .filter(|report| report.completed == Some(true))?;
        report.checkpoint_name.as_ref()?;
        let start = report.start_timestamp.clone()?;
        let volume = |volume_name: &String| BackupVolumeInfo {
            volume_name: volume_name.clone(),
            ..BackupVolumeInfo::default()
        };
        let volumes = report.volumes.iter().map(|one| &one.volume_name);
        Some(BackupCheckpoint {
            name: Some(backup_directory(self.name(), &start)),
            volumes: volumes.map(volume).collect(),
            creation_time: Some(start),
        })
    }

    /// The checkpoint that the tracker has yet to get.
    pub(super) fn new_checkpoint(&self) -> Option<BackupCheckpoint> {
        let tracker = self.tracker.as_deref()?;
        // Another tracker may have got the name of this one.
        let is_of_vm = Some(&tracker.spec.source.name) == self.vm.as_ref();
        let own = self.own_checkpoint().filter(|_| is_of_vm)?;
        let known = latest(tracker).and_then(|latest| latest.name.as_ref());
        (known != own.name.as_ref()).then_some(own)
    }

    pub(super) fn is_finished(&self) -> bool {
        is_finished(&self.backup)
    }

    /// Whether the status says that the copy began.
    pub(super) fn has_begun(&self) -> bool {
        let reason = progressing(&self.backup).map(|one| one.reason.as_str());
        reason == Some(Reason::Initiated.as_str())
    }

    /// Whether the status has the whole result of a copy.
    pub(super) fn is_copied(&self) -> bool {
        let status = self.backup.status.as_ref();
        status.is_some_and(|status| !status.included_volumes.is_empty())
    }
}

type Condition = k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

fn progressing(backup: &VirtualMachineBackup) -> Option<&Condition> {
    let all = &backup.status.as_ref()?.conditions;
    conditions::find(all, &Type::Progressing.as_str().to_owned())
}

/// Names prove nothing.
fn is_controlled(export: &VirtualMachineExport, backup: &VirtualMachineBackup) -> bool {
    let mut owners = export.metadata.owner_references.iter().flatten();
    owners.any(|owner| {
        owner.controller == Some(true) && Some(&owner.uid) == backup.metadata.uid.as_ref()
    })
}

/// Whether the backup has completed or failed.
pub(super) fn is_finished(backup: &VirtualMachineBackup) -> bool {
    let all = backup.status.iter().flat_map(|status| &status.conditions);
    let ends = [Type::Complete.as_str(), Type::Failed.as_str()];
    all.filter(|one| ends.contains(&one.type_.as_str()))
        .any(|one| one.status() == conditions::TRUE)
}

pub(super) fn has_finalizer(backup: &VirtualMachineBackup) -> bool {
    let mut all = backup.metadata.finalizers.iter().flatten();
    all.any(|one| one == finalizers::BACKUP)
}

/// Whether nothing is left to do for the backup.
pub(super) fn is_settled(backup: &VirtualMachineBackup) -> bool {
    is_finished(backup) && !has_finalizer(backup)
}

fn is_tracked(backup: &VirtualMachineBackup) -> bool {
    backup.spec.source.kind == VirtualMachineBackupTracker::KIND
}

fn latest(tracker: &VirtualMachineBackupTracker) -> Option<&BackupCheckpoint> {
    tracker.status.as_ref()?.latest_checkpoint.as_ref()
}

/// The last checkpoints of trackers, those made last first.
fn checkpoints(mut trackers: Vec<Arc<VirtualMachineBackupTracker>>) -> Vec<String> {
    let time = |one: &Arc<VirtualMachineBackupTracker>| {
        latest(one).and_then(|latest| latest.creation_time.clone())
    };
    trackers.sort_by_key(|one| std::cmp::Reverse(time(one)));
    let names = trackers.iter().filter_map(|one| latest(one)?.name.clone());
    names.take(MAX_CHECKPOINTS).collect()
}

/// The VM of a backup; `None` while its tracker does not exist.
fn vm_of(
    backup: &VirtualMachineBackup,
    trackers: &Store<VirtualMachineBackupTracker>,
) -> Option<String> {
    let source = &backup.spec.source;
    if !is_tracked(backup) {
        return Some(source.name.clone());
    }
    let namespace = backup.metadata.namespace.as_deref().unwrap_or_default();
    let tracker = trackers.get(&Key::new(namespace, source.name.as_str()))?;
    Some(tracker.spec.source.name.clone())
}

fn report_of<'a>(
    guest: &'a Guest,
    backup: &VirtualMachineBackup,
) -> Option<&'a VirtualMachineInstanceBackupStatus> {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let report = guest.status.backup.as_deref()?;
    let is_own = report.backup_name.as_deref() == Some(name) && !has_other_claim(guest, backup);
    is_own.then_some(report)
}

/// Whether the volume of the backup has another claim: that of an earlier backup of the same name.
fn has_other_claim(guest: &Guest, backup: &VirtualMachineBackup) -> bool {
    let volume = backup_volume(backup.metadata.name.as_deref().unwrap_or_default());
    let claim = backup.spec.pvc_name.as_deref().unwrap_or_default();
    let mut volumes = guest.utility_volumes.iter();
    volumes.any(|one| one.name == volume && one.claim_name != claim)
}

/// Whether the guest has anything of the backup.
pub(super) fn holds(guest: &Guest, backup: &VirtualMachineBackup) -> bool {
    if has_other_claim(guest, backup) {
        return false;
    }
    let volume = backup_volume(backup.metadata.name.as_deref().unwrap_or_default());
    let mut volumes = guest.utility_volumes.iter();
    let mut known = guest.status.volumes.iter();
    volumes.any(|one| one.name == volume)
        || known.any(|one| one.name == volume && one.hotplug_volume.is_some())
        || report_of(guest, backup).is_some()
}

/// Whether a change of the guest matters to the backup. A tracker may be deleted during a backup.
pub(super) fn is_concerned(
    backup: &VirtualMachineBackup,
    guest: &Guest,
    trackers: &Store<VirtualMachineBackupTracker>,
) -> bool {
    let is_of_vm =
        || vm_of(backup, trackers).is_none_or(|vm| guest.metadata.name.as_ref() == Some(&vm));
    !is_settled(backup) && (is_of_vm() || holds(guest, backup))
}

impl Controller {
    /// The guest that has something of the backup of a tracker, even if the tracker is gone.
    fn holder(&self, key: &Key, backup: &VirtualMachineBackup) -> Option<Arc<Guest>> {
        if !is_tracked(backup) {
            return None;
        }
        let mut guests = self.vmis.in_namespace(&key.namespace).into_iter();
        guests.find(|guest| holds(guest, backup))
    }

    pub(super) fn observe(&self, key: &Key, backup: Arc<VirtualMachineBackup>) -> Observed {
        let named = |name: &str| Key::new(key.namespace.as_str(), name);
        let (vm, guest) = if let Some(guest) = self.holder(key, &backup) {
            (guest.metadata.name.clone(), Some(guest))
        } else {
            let vm = vm_of(&backup, &self.trackers);
            let guest = vm.as_deref().and_then(|vm| self.vmis.get(&named(vm)));
            (vm, guest)
        };
        let claim = backup.spec.pvc_name.as_deref().unwrap_or_default();
        let claim = self.volumes.claims.get(&named(claim), key);
        let target = match claim {
            None => Target::Missing,
            Some(claim) if claim.facts.mode() == ClaimMode::Block => Target::BlockDevice,
            Some(_) => Target::FileSystem,
        };
        let source = named(&backup.spec.source.name);
        let mut of_vm = self.trackers.in_namespace(&key.namespace);
        of_vm.retain(|one| {
            one.metadata.deletion_timestamp.is_none() && Some(&one.spec.source.name) == vm.as_ref()
        });
        let tracker = is_tracked(&backup).then(|| self.trackers.get(&source));
        let export = self
            .exports
            .get(&named(backup.metadata.name.as_deref().unwrap_or_default()));
        let export = match export {
            None => Export::None,
            Some(export) if is_controlled(&export, &backup) => Export::Own(export),
            Some(_) => Export::Foreign,
        };
        Observed {
            export,
            tracker: tracker.flatten(),
            kept_checkpoints: checkpoints(of_vm),
            backup,
            vm,
            guest,
            target,
            now: self.clock.now(),
        }
    }
}
