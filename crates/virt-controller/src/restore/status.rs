//! The status of a restore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::restore::{VirtualMachineRestoreStatus as Status, VolumeRestore};
use kubevirt_api::snapshot::ConditionType as Type;
use reasons::Reason;

use super::observe::Observed;
use super::plan::Progress;
use crate::operation::set_conditions;

pub(super) fn render(observed: &Observed, progress: &Progress) -> Status {
    let mut status = observed.restore.status.clone().unwrap_or_default();
    if !observed.disks.is_empty() {
        let one = |disk: &super::observe::Disk| VolumeRestore {
            volume_name: disk.backup.volume_name.clone(),
            persistent_volume_claim: disk.name.clone(),
            volume_snapshot_name: disk.backup.volume_snapshot_name.clone().unwrap_or_default(),
            data_volume_name: None,
        };
        status.restores = observed.disks.iter().map(one).collect();
    }
    let now = Time(observed.now);
    match progress {
        Progress::Ended => {}
        Progress::Restoring => set(&mut status, Reason::RestoreInProgress, "", &now),
        Progress::Waits { reason, message } => set(&mut status, *reason, message, &now),
        Progress::Failed { reason, message } => {
            set(&mut status, *reason, message, &now);
            end(&mut status, *reason, message, &now);
        }
    }
    status
}

/// The status of a restore that is complete.
pub(super) fn complete(observed: &Observed) -> Status {
    let now = Time(observed.now);
    let mut status = render(observed, &Progress::Restoring);
    status.complete = Some(true);
    status.restore_time = Some(now.clone());
    let values = [(Type::Ready, true), (Type::Progressing, false)];
    let cause = (Reason::VirtualMachineRestoreComplete, "");
    set_conditions(&mut status.conditions, values, cause, &now);
    status
}

fn set(status: &mut Status, reason: Reason, message: &str, now: &Time) {
    status.complete = Some(false);
    let values = [(Type::Ready, false), (Type::Progressing, true)];
    set_conditions(&mut status.conditions, values, (reason, message), now);
}

fn end(status: &mut Status, reason: Reason, message: &str, now: &Time) {
    let values = [(Type::Progressing, false), (Type::Failure, true)];
    set_conditions(&mut status.conditions, values, (reason, message), now);
}
