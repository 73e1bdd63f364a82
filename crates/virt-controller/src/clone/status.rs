//! The status of a clone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::clone::{
    ConditionType as Type, VirtualMachineClonePhase as Phase, VirtualMachineCloneStatus as Status,
};
use reasons::Reason;

use super::copy::{own_snapshot_name, restore_name};
use super::observe::{Observed, is_of_vm};
use super::plan::{Cause, Progress};
use crate::operation::set_conditions;

pub(super) fn render(observed: &Observed, progress: &Progress) -> Status {
    let mut status = observed.clone.status.clone().unwrap_or_default();
    if observed.clone.metadata.deletion_timestamp.is_some() {
        return status;
    }
    let snapshot = observed.snapshot.as_ref();
    let snapshot = snapshot
        .filter(|one| is_of_vm(&observed.clone) && one.metadata.deletion_timestamp.is_none());
    let restore = observed.restore.as_ref();
    let restore = restore.filter(|one| one.metadata.deletion_timestamp.is_none());
    status.snapshot_name = snapshot.map(|_| own_snapshot_name(&observed.clone));
    status.restore_name = restore.map(|_| restore_name(&observed.clone));
    let now = Time(observed.now);
    match progress {
        Progress::Ended => {}
        Progress::Pending(cause) => set(&mut status, &Shown::waits(None, Some(cause)), &now),
        Progress::Snapshotting(cause) => {
            let shown = Shown::waits(Some(Phase::SnapshotInProgress), cause.as_ref());
            set(&mut status, &shown, &now);
        }
        Progress::Restoring(cause) => {
            let shown = Shown::waits(Some(Phase::RestoreInProgress), cause.as_ref());
            set(&mut status, &shown, &now);
        }
        Progress::CreatingTarget(cause) => {
            let shown = Shown::waits(Some(Phase::CreatingTargetVm), cause.as_ref());
            status.target_name = restore.map(|one| one.spec.target.name.clone());
            set(&mut status, &shown, &now);
        }
        Progress::Succeeded(unbound) => {
            // Also from one that a user has deleted meanwhile.
            if let Some(restore) = &observed.restore {
                status.target_name = Some(restore.spec.target.name.clone());
            }
            status.creation_time.get_or_insert_with(|| now.clone());
            let message = match unbound.as_slice() {
                [] => String::new(),
                claims => format!(
                    "the snapshot is kept until the data of {} is copied, which may be when the VM starts \
                     for the first time",
                    claims.join(", ")
                ),
            };
            let shown = Shown {
                phase: Some(Phase::Succeeded),
                cause: (Reason::CloneReady, message),
                is_ready: true,
                is_progressing: false,
            };
            set(&mut status, &shown, &now);
        }
        Progress::Failed(cause) => {
            let shown = Shown {
                phase: Some(Phase::Failed),
                cause: cause.clone(),
                is_ready: false,
                is_progressing: false,
            };
            set(&mut status, &shown, &now);
        }
    }
    status
}

struct Shown {
    /// `None` before the first step.
    phase: Option<Phase>,
    cause: Cause,
    is_ready: bool,
    is_progressing: bool,
}

impl Shown {
    fn waits(phase: Option<Phase>, cause: Option<&Cause>) -> Self {
        Self {
            is_progressing: phase.is_some(),
            is_ready: false,
            cause: cause
                .cloned()
                .unwrap_or((Reason::CloneInProgress, String::new())),
            phase,
        }
    }
}

fn set(status: &mut Status, shown: &Shown, now: &Time) {
    if let Some(phase) = &shown.phase {
        status.phase = Some(phase.clone());
    }
    let values = [
        (Type::Ready, shown.is_ready),
        (Type::Progressing, shown.is_progressing),
    ];
    let (reason, message) = &shown.cause;
    set_conditions(&mut status.conditions, values, (*reason, message), now);
}
