//! The status of a restore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubevirt_api::backup::ConditionType as Type;
use kubevirt_api::backup_restore::{
    Checksums, RestorePhase as Phase, RestoredVolume, VirtualMachineBackupRestore as Restore,
    VirtualMachineBackupRestoreStatus as Status,
};
use kubevirt_api::conditions::{self, ConditionValue};
use reasons::Reason;

use super::disk::Disk;
use super::observe::Observed;
use super::plan::Progress;
use crate::data_volume::pod_restarts;

/// Whether the restore has completed or failed.
pub(super) fn is_finished(restore: &Restore) -> bool {
    let phase = restore
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    matches!(phase, Some(Phase::Succeeded | Phase::Failed))
}

pub(super) fn render(observed: &Observed, progress: &Progress) -> Status {
    let mut status = observed.restore.status.clone().unwrap_or_default();
    let now = Time(observed.now);
    let list = &mut status.conditions;
    let mut begin = |reason: Reason, message: &str| {
        let message = reason.advise(message);
        set(list, &Type::Progressing, (true, reason, &message), &now);
    };
    match progress {
        Progress::Kept => {}
        Progress::Found { claim, directory } => {
            status.phase = Some(Phase::Inspecting);
            begin(Reason::ImportScheduled, "the backup is found");
            status.pvc_name = Some(claim.clone());
            status.directory = Some(directory.clone());
        }
        Progress::Inspecting { reason, message } => {
            status.phase = Some(Phase::Inspecting);
            begin(*reason, message);
            if observed.inspected.is_some() {
                status.progress.clone_from(&observed.inspected);
            }
            let restarts = observed.inspector.as_deref().map(pod_restarts);
            status.restarts = restarts.filter(|count| *count > 0);
        }
        Progress::Known(volumes) => {
            status.phase = Some(Phase::Restoring);
            begin(Reason::ImportScheduled, "the claims are being created");
            status.progress = Some(percent(0));
            status.volumes.clone_from(volumes);
        }
        Progress::Waits {
            phase,
            reason,
            message,
        } => {
            status.phase = Some(phase.clone());
            begin(*reason, message);
            record(&mut status, observed);
        }
        Progress::Recorded(volumes) => {
            status.progress = Some(overall(volumes));
            status.volumes.clone_from(volumes);
        }
        Progress::Restoring {
            volumes,
            reason,
            message,
        } => {
            status.phase = Some(Phase::Restoring);
            begin(*reason, message);
            status.progress = Some(overall(volumes));
            status.volumes.clone_from(volumes);
        }
        Progress::Complete(volumes) => {
            status.phase = Some(Phase::Succeeded);
            status.progress = Some(percent(1000));
            let message = complete(observed, volumes);
            let reason = Reason::Completed;
            set(list, &Type::Complete, (true, reason, &message), &now);
            set(list, &Type::Progressing, (false, reason, ""), &now);
            status.volumes.clone_from(volumes);
        }
        Progress::Failed(reason, message) => {
            status.phase = Some(Phase::Failed);
            let message = reason.advise(&format!("{message}{}", left(observed)));
            set(list, &Type::Failed, (true, *reason, &message), &now);
            set(list, &Type::Progressing, (false, *reason, ""), &now);
            record(&mut status, observed);
        }
    }
    status
}

/// A disk that was completed stays on record, whatever happens to the others.
fn record(status: &mut Status, observed: &Observed) {
    if !observed.disks.is_empty() {
        let uid = observed.uid();
        let all = observed.disks.iter();
        status.volumes = all.map(|disk| disk.status(uid)).collect();
    }
}

/// A sentence about the disks.
fn complete(observed: &Observed, volumes: &[RestoredVolume]) -> String {
    let directory = observed.directory().unwrap_or_default();
    let without = volumes
        .iter()
        .filter(|one| one.checksums != Some(Checksums::Verified));
    let without: Vec<&str> = without.map(|one| one.name.as_str()).collect();
    let mut message = format!(
        "the disks of directory {directory} are restored (volumes: {})",
        volumes.len()
    );
    if without.is_empty() {
        message.push_str("; all files had the right checksums");
    } else {
        let names = without.join(", ");
        message = format!(
            "{message}; the backup has no checksums for all files of: {names}, whose tables were checked only"
        );
    }
    message
}

/// What a restore that failed leaves.
fn left(observed: &Observed) -> String {
    let uid = observed.uid();
    let list = |disks: Vec<&Disk>, sentence: &str| {
        let names: Vec<&str> = disks
            .iter()
            .map(|disk| disk.volume.claim_name.as_str())
            .collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!("; {sentence}: {}", names.join(", ")),
        }
    };
    let all = || observed.disks.iter();
    let half = all().filter(|disk| {
        let mark = disk.own_mark(uid);
        mark.is_some_and(|mark| mark.is_open()) && !disk.is_untouched(observed)
    });
    let done = all().filter(|disk| disk.is_recorded() || disk.is_done(uid));
    let done = done.filter(|_| observed.overwrites());
    let sentence = "these claims may have no complete disk, and no VM starts with them";
    let left = list(half.collect(), sentence);
    left + &list(
        done.collect(),
        "these claims have the disk of the backup already",
    )
}

/// The share of all disks, by their sizes.
fn overall(volumes: &[RestoredVolume]) -> String {
    let (mut done, mut all) = (0_u128, 0_u128);
    for volume in volumes {
        let size = u128::try_from(volume.disk_bytes).unwrap_or_default().max(1);
        let shown = volume.progress.as_deref().unwrap_or_default();
        done += size * permille(shown);
        all += size * 1000;
    }
    let share = (done * 1000).checked_div(all).unwrap_or_default();
    // Complete only when the restore is.
    percent(u64::try_from(share).unwrap_or_default().min(999))
}

/// Of a text such as `42.5%`.
fn permille(text: &str) -> u128 {
    let text = text.strip_suffix('%').unwrap_or_default();
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let whole: u128 = whole.parse().unwrap_or_default();
    let tenth: u128 = tenth.parse().unwrap_or_default();
    (whole.min(100) * 10 + tenth.min(9)).min(1000)
}

fn percent(permille: u64) -> String {
    format!("{}.{}%", permille / 10, permille % 10)
}

fn set(
    list: &mut Vec<Condition>,
    kind: &Type,
    (holds, reason, message): (bool, Reason, &str),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_disks_by_their_sizes() {
        let volume = |disk_bytes: i64, progress: Option<&str>| RestoredVolume {
            disk_bytes,
            progress: progress.map(str::to_owned),
            ..RestoredVolume::default()
        };
        for (volumes, expected) in [
            (vec![], "0.0%"),
            (vec![volume(100, None)], "0.0%"),
            (
                vec![volume(300, Some("100.0%")), volume(100, Some("50.5%"))],
                "87.6%",
            ),
            (vec![volume(100, Some("100.0%"))], "99.9%"),
            (
                vec![volume(i64::MAX, Some("x%")), volume(-1, Some("7"))],
                "0.0%",
            ),
        ] {
            assert_eq!(overall(&volumes), expected, "{volumes:?}");
        }
    }
}
