//! The status of a backup.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubevirt_api::backup::{
    BackupType, BackupVolumeInfo, ConditionType as Type, QuiesceStatus,
    VirtualMachineBackupStatus as Status,
};
use kubevirt_api::conditions::{self, Condition as _, ConditionValue};
use reasons::Reason;

use super::observe::Observed;
use super::plan::{Progress, is_incomplete};

pub(super) fn render(observed: &Observed, progress: &Progress) -> Status {
    let mut status = observed.backup.status.clone().unwrap_or_default();
    note_report(observed, &mut status);
    let now = Time(observed.now);
    let list = &mut status.conditions;
    match progress {
        Progress::Kept => {}
        Progress::Waits(message) => set(
            list,
            &Type::Progressing,
            true,
            Reason::Initializing,
            message,
            &now,
        ),
        Progress::Copying(message) => {
            // Only its end says whether it could build on a parent.
            let is_asked = observed.is_tracked() && observed.parent().is_some();
            status.type_ = (!is_asked).then_some(BackupType::Full);
            set(
                list,
                &Type::Progressing,
                true,
                Reason::Initiated,
                message,
                &now,
            );
        }
        Progress::Leaving => {
            let report = observed.report().cloned().unwrap_or_default();
            let own = observed.own_checkpoint();
            status.checkpoint_name = own.and_then(|own| own.name);
            let is_incremental = report.checkpoint_name.is_some()
                && report.checkpoint_name != status.checkpoint_name;
            status.type_ = Some(if is_incremental {
                BackupType::Incremental
            } else {
                BackupType::Full
            });
            let message = report.backup_msg.unwrap_or_default();
            let message = format!("claim {}, {message}", observed.claim());
            set(
                list,
                &Type::Progressing,
                true,
                Reason::Initiated,
                &message,
                &now,
            );
            let volumes = report.volumes.into_iter();
            status.included_volumes = volumes
                .map(|one| BackupVolumeInfo {
                    volume_name: one.volume_name,
                    ..BackupVolumeInfo::default()
                })
                .collect();
        }
        Progress::Aborting => {
            let message = "the backup was deleted before its end";
            set(
                list,
                &Type::Progressing,
                true,
                Reason::Aborting,
                message,
                &now,
            );
        }
        Progress::Complete => {
            let quiesced = Type::Quiesced.as_str().to_owned();
            let quiesced = conditions::find(list, &quiesced).map(|one| one.reason().to_owned());
            let reason = if quiesced.as_deref() == Some(Reason::QuiesceFailed.as_str()) {
                Reason::CompletedWithWarning
            } else {
                Reason::Completed
            };
            let progressing = Type::Progressing.as_str().to_owned();
            let known = conditions::find(list, &progressing);
            let message = known
                .map(|one| one.message().to_owned())
                .unwrap_or_default();
            let message = reason.advise(&message);
            set(list, &Type::Complete, true, reason, &message, &now);
            set(list, &Type::Progressing, false, reason, "", &now);
        }
        Progress::Failed(reason, message) => {
            let advised = Reason::VirtualMachineBackupFailed.advise(message);
            set(list, &Type::Failed, true, *reason, &advised, &now);
            set(list, &Type::Progressing, false, *reason, "", &now);
        }
    }
    status
}

/// Whether the guest wrote its caches to disk.
fn note_report(observed: &Observed, status: &mut Status) {
    let Some(report) = observed.report() else {
        return;
    };
    let quiesce = report.quiesce_status.as_deref();
    let (holds, reason) = match quiesce.map(QuiesceStatus::from) {
        Some(QuiesceStatus::Succeeded) => (true, Reason::QuiesceSucceeded),
        Some(QuiesceStatus::Skipped) => (false, Reason::QuiesceSkipped),
        _ if is_incomplete(quiesce) => (false, Reason::QuiesceFailed),
        _ => return,
    };
    let now = Time(observed.now);
    let message = reason.row().meaning;
    set(
        &mut status.conditions,
        &Type::Quiesced,
        holds,
        reason,
        message,
        &now,
    );
}

fn set(
    list: &mut Vec<Condition>,
    kind: &Type,
    holds: bool,
    reason: Reason,
    message: &str,
    now: &Time,
) {
    let value = ConditionValue {
        status: if holds {
            conditions::TRUE
        } else {
            conditions::FALSE
        },
        reason: reason.as_str(),
        message,
    };
    conditions::set(list, kind.as_str().to_owned(), &value, now);
}
