//! Pure planning: maps an observed backup to its next step and to what users see.

use kubevirt_api::backup::QuiesceStatus;
use kubevirt_api::vmi::UtilityVolumeType;
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceBackupStatus as Report, VirtualMachineInstancePhase as Phase, VolumePhase,
};
use reasons::Reason;

use super::observe::{Observed, Target, has_finalizer};
use super::pull;
use crate::operation;
use crate::view::Guest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    AddFinalizer,
    /// Adds the claim to the guest's utility volumes.
    Attach,
    /// Requests the backup of virt-handler.
    Begin,
    /// Records the checkpoint of the backup in its tracker.
    Track,
    /// Creates the export by which the disks are offered.
    Offer,
    /// Deletes the export.
    Withdraw,
    /// Removes the claim from the guest's utility volumes.
    Detach,
    /// Removes the backup from the status of the guest.
    Forget,
    RemoveFinalizer,
}

/// What users see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// The status stays as it is.
    Kept,
    /// Nothing is copied yet.
    Waits(String),
    Copying(String),
    /// The copy is complete, and its claim is leaving the guest's pod.
    Leaving,
    Aborting,
    /// The guest offers its disks, and their export is not ready, with the reason.
    Offering(String),
    /// A client can read the disks.
    Offered,
    /// The time of the offer is over.
    Expired,
    Complete,
    Failed(Reason, String),
}

pub(super) type Plan = operation::Plan<Step, Progress>;

pub(super) fn plan(observed: &Observed) -> Plan {
    let is_deleting = observed.backup.metadata.deletion_timestamp.is_some();
    if is_deleting || observed.is_finished() {
        return clear_up(observed);
    }
    if !has_finalizer(&observed.backup) {
        return Plan::step(Step::AddFinalizer, Progress::Kept);
    }
    if observed.report().is_some() || observed.has_begun() || observed.is_copied() {
        return if observed.is_pull() {
            pull::follow(observed)
        } else {
            follow(observed)
        };
    }
    if observed.is_pull() && pull::time_left(observed).is_none() {
        return failed(Reason::Failed, pull::TOO_LATE);
    }
    let mut plan = match ready(observed) {
        Ok(guest) => bring(observed, guest),
        Err(plan) => plan,
    };
    if observed.is_pull() {
        plan.requeue_in = pull::time_left(observed);
    }
    plan
}

pub(super) fn failed(reason: Reason, message: impl Into<String>) -> Plan {
    Plan::state(Progress::Failed(reason, message.into()))
}

fn waits(message: impl Into<String>) -> Plan {
    Plan::state(Progress::Waits(message.into()))
}

/// Removes all of the backup from the guest, in the end or after a deletion.
fn clear_up(observed: &Observed) -> Plan {
    let progress = if observed.is_finished() {
        Progress::Kept
    } else {
        Progress::Aborting
    };
    if observed.offer().is_some() {
        return Plan::step(Step::Withdraw, progress);
    }
    // The pod of a guest that has ended takes its volumes with it.
    let guest = observed.guest.as_ref().filter(|guest| !guest.is_final());
    if guest.is_some() {
        if observed.is_attached() {
            return Plan::step(Step::Detach, progress);
        }
        if observed.volume_status().is_some() {
            return Plan::state(progress);
        }
    }
    if observed.report().is_some() {
        return Plan::step(Step::Forget, progress);
    }
    if has_finalizer(&observed.backup) {
        return Plan::step(Step::RemoveFinalizer, progress);
    }
    Plan::state(Progress::Kept)
}

/// The guest, if a backup of it can begin.
fn ready(observed: &Observed) -> Result<&Guest, Plan> {
    let Some(vm) = &observed.vm else {
        let tracker = &observed.backup.spec.source.name;
        let message = format!("there is no VirtualMachineBackupTracker {tracker}");
        return Err(waits(message));
    };
    let guest = observed.guest.as_deref();
    let Some(guest) = guest.filter(|guest| *guest.phase() == Phase::Running) else {
        return Err(waits(format!("VM {vm} does not run; start it")));
    };
    if guest.is_deleting() {
        return Err(waits(format!("the guest of VM {vm} is ending")));
    }
    if guest.status.is_migrating {
        return Err(waits(format!("the guest of VM {vm} is migrating")));
    }
    let own = observed.volume();
    let mut others = guest.utility_volumes.iter();
    let is_other =
        others.any(|one| one.type_ == Some(UtilityVolumeType::Backup) && one.name != own);
    if is_other || guest.status.backup.is_some() {
        return Err(waits(format!("another backup of VM {vm} is in progress")));
    }
    let claim = observed.claim();
    match observed.target {
        Target::FileSystem => Ok(guest),
        Target::Missing => Err(waits(format!(
            "there is no PersistentVolumeClaim {claim}; create it"
        ))),
        Target::BlockDevice => Err(failed(
            Reason::Failed,
            format!("claim {claim} is a block device; use one with volumeMode Filesystem"),
        )),
    }
}

/// Has the claim brought to the guest's pod.
fn bring(observed: &Observed, guest: &Guest) -> Plan {
    let status = observed.volume_status();
    let progress = |message: String| Progress::Waits(message);
    if !observed.is_attached() {
        let message = format!("claim {} is being attached", observed.claim());
        return match status {
            // Of an earlier attempt, which leaves first.
            Some(_) => Plan::state(progress(message)),
            None => Plan::step(Step::Attach, progress(message)),
        };
    }
    let phase = status.and_then(|status| status.phase.as_ref());
    if phase == Some(&VolumePhase::MountedToPod) {
        return Plan::step(Step::Begin, Progress::Kept);
    }
    let why = status.and_then(|status| status.message.as_deref());
    let why = why.unwrap_or("its pod is being created");
    let node = guest.status.node_name.as_deref().unwrap_or_default();
    waits(format!(
        "claim {} is being attached on node {node}: {why}",
        observed.claim()
    ))
}

/// Follows a copy that has begun.
fn follow(observed: &Observed) -> Plan {
    let Some(report) = observed.report() else {
        return if observed.is_copied() {
            Plan::state(Progress::Complete)
        } else {
            let message = "the guest ended before its backup was complete";
            failed(Reason::SourceLost, message)
        };
    };
    let is_over = observed.guest.as_ref().is_none_or(|guest| guest.is_final());
    if report.completed != Some(true) {
        if is_over {
            let message = "the guest ended before its backup was complete";
            return failed(Reason::SourceLost, message);
        }
        let message = report.backup_msg.clone();
        return Plan::state(Progress::Copying(
            message.unwrap_or_else(|| "the disks are being copied".to_owned()),
        ));
    }
    // Written before the claim leaves: the guest may end meanwhile, and its report with it.
    if !has_failed(report) && !observed.is_copied() {
        return Plan::state(Progress::Leaving);
    }
    if !has_failed(report) && observed.new_checkpoint().is_some() {
        return Plan::step(Step::Track, Progress::Kept);
    }
    if !is_over {
        if observed.is_attached() {
            return Plan::step(Step::Detach, Progress::Kept);
        }
        if observed.volume_status().is_some() {
            return Plan::state(Progress::Kept);
        }
    }
    if has_failed(report) {
        return failed(Reason::Failed, failure(report));
    }
    Plan::state(Progress::Complete)
}

pub(super) fn has_failed(report: &Report) -> bool {
    report.failed == Some(true) || (report.completed == Some(true) && report.volumes.is_empty())
}

pub(super) fn failure(report: &Report) -> String {
    if report.failed != Some(true) {
        return "the copy ended without a disk".to_owned();
    }
    report.backup_msg.clone().unwrap_or_default()
}

/// Whether the guest was to write its caches to disk, and did not.
pub(super) fn is_incomplete(quiesce: Option<&str>) -> bool {
    quiesce == Some(QuiesceStatus::Failed.as_str())
}
