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
use super::pull;

#[expect(clippy::too_many_lines, reason = "one arm for each course of a backup")]
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
            let is_asked =
                observed.is_tracked() && !observed.is_pull() && observed.parent().is_some();
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
        Progress::Offering(message) => {
            set(
                list,
                &Type::Progressing,
                true,
                Reason::PreparingExport,
                message,
                &now,
            );
            note_offer(observed, &mut status);
        }
        Progress::Offered => {
            let report = observed.report();
            let message = report.and_then(|report| report.backup_msg.as_deref());
            let mut message = message.unwrap_or_default().to_owned();
            if observed.is_tracked() {
                message.push_str("; mode Pull has all blocks, and leaves the tracker as it is");
            }
            let message = Reason::ExportReady.advise(&message);
            set(
                list,
                &Type::Progressing,
                true,
                Reason::ExportReady,
                &message,
                &now,
            );
            note_offer(observed, &mut status);
        }
        Progress::Expired => {
            let message = "the time of the backup is over, and its disks are not offered any more";
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
    if matches!(progress, Progress::Complete | Progress::Failed(..)) && observed.is_pull() {
        withdraw(&mut status);
    }
    status
}

/// What is offered, and where.
fn note_offer(observed: &Observed, status: &mut Status) {
    let export = observed.offer();
    let links = export.and_then(|export| pull::links(export));
    status.type_ = Some(BackupType::Full);
    status.export_uid = export.and_then(|export| export.metadata.uid.clone());
    status.endpoint_cert = links.map(|link| link.cert.clone());
    let volumes = observed.report().into_iter().flat_map(|one| &one.volumes);
    status.included_volumes = volumes
        .map(|one| pull::volume(&one.volume_name, links))
        .collect();
}

/// Removes the addresses of what is not offered any more.
fn withdraw(status: &mut Status) {
    status.endpoint_cert = None;
    for volume in &mut status.included_volumes {
        volume.data_endpoint = None;
        volume.map_endpoint = None;
    }
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
