//! The status of a snapshot.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::snapshot::{
    ConditionType as Type, Error, Indication, SnapshotVolumesLists, SourceIndication,
    VirtualMachineSnapshotPhase as Phase, VirtualMachineSnapshotStatus as Status,
};
use reasons::Reason;
use serde_json::json;

use super::observe::Observed;
use super::plan::Progress;
use super::source::{DiskState, claim_of, volumes};
use crate::operation::set_conditions;

pub(super) fn render(observed: &Observed, progress: &Progress) -> Status {
    let now = Time(observed.now);
    let before = observed.snapshot.status.clone().unwrap_or_default();
    let content = observed.content.as_ref();
    let created = content.and_then(|one| one.object.status.as_ref()?.creation_time.clone());
    let mut status = Status {
        source_uid: before
            .source_uid
            .clone()
            .or_else(|| observed.locked().map(|vm| vm.uid.clone())),
        virtual_machine_snapshot_content_name: content
            .and_then(|one| one.object.metadata.name.clone())
            .or_else(|| before.virtual_machine_snapshot_content_name.clone()),
        creation_time: created.or_else(|| before.creation_time.clone()),
        ..before
    };
    note_source(observed, &mut status);
    match progress {
        Progress::Ended => {}
        Progress::Copying => set(
            &mut status,
            Phase::InProgress,
            Reason::SnapshotInProgress,
            "",
            &now,
        ),
        Progress::Waits { reason, message } => {
            set(&mut status, Phase::InProgress, *reason, message, &now);
        }
        Progress::Complete => set(
            &mut status,
            Phase::Succeeded,
            Reason::SnapshotComplete,
            "",
            &now,
        ),
        Progress::Lost(message) => {
            let reason = Reason::VolumeSnapshotMissing;
            set(&mut status, Phase::Succeeded, reason, message, &now);
        }
        Progress::Failed { reason, message } => {
            set(&mut status, Phase::Failed, *reason, message, &now);
        }
        Progress::Deleting => status.phase = Some(Phase::Deleting),
    }
    status
}

/// How the guest was copied, and which volumes.
fn note_source(observed: &Observed, status: &mut Status) {
    let excluded = |observed: &Observed| {
        let disks = observed.disks.iter();
        let disks = disks.filter(|disk| matches!(disk.state, DiskState::NotCopyable(_)));
        disks.map(|disk| disk.volume.clone()).collect::<Vec<_>>()
    };
    let mut notes = observed.hold().map(|hold| hold.indications());
    if let Some(content) = &observed.content {
        let included: Vec<String> = content
            .copies
            .iter()
            .map(|one| one.volume.clone())
            .collect();
        let source = content.object.spec.source.virtual_machine.as_ref();
        let spec =
            source.map(|vm| json!({"template": vm.spec.as_ref().map(|spec| &spec.template)}));
        let spec = spec.unwrap_or_default();
        let is_left_out = |name: &str| !included.iter().any(|one| one == name);
        let named = volumes(&spec).iter().filter_map(|volume| {
            let name = volume["name"].as_str().filter(|name| is_left_out(name))?;
            Some((name.to_owned(), claim_of(volume).is_some()))
        });
        let left_out: Vec<(String, bool)> = named.collect();
        let claims: Vec<&str> = left_out
            .iter()
            .filter(|(_, is_claim)| *is_claim)
            .map(|(name, _)| name.as_str())
            .collect();
        if let Some(notes) = notes.as_mut()
            && !claims.is_empty()
        {
            notes.push(SourceIndication {
                indication: Indication::PartialSnapshot,
                message: format!("not in the snapshot: {}", claims.join(", ")),
            });
        }
        status.snapshot_volumes = Some(SnapshotVolumesLists {
            included_volumes: included,
            excluded_volumes: left_out.into_iter().map(|(name, _)| name).collect(),
        });
    } else if !observed.disks.is_empty() || !observed.others.is_empty() {
        let copyable = observed.disks.iter();
        let copyable = copyable.filter(|disk| matches!(disk.state, DiskState::Copyable(_)));
        let mut left_out = excluded(observed);
        left_out.extend(observed.others.iter().cloned());
        status.snapshot_volumes = Some(SnapshotVolumesLists {
            included_volumes: copyable.map(|disk| disk.volume.clone()).collect(),
            excluded_volumes: left_out,
        });
    }
    // After the release the record is gone, and the notes stay.
    if let Some(notes) = notes {
        status.indications = notes.iter().map(|one| one.indication.clone()).collect();
        status.source_indications = notes;
    }
}

fn set(status: &mut Status, phase: Phase, reason: Reason, message: &str, now: &Time) {
    let is_ready = reason == Reason::SnapshotComplete;
    let is_failed = phase == Phase::Failed;
    let is_busy = phase == Phase::InProgress;
    let all = &mut status.conditions;
    let cause = (reason, message);
    let values = [(Type::Ready, is_ready), (Type::Progressing, is_busy)];
    set_conditions(all, values, cause, now);
    if is_failed {
        set_conditions(all, [(Type::Failure, true)], cause, now);
    }
    status.ready_to_use = Some(is_ready);
    status.phase = Some(phase);
    let known = status
        .error
        .as_ref()
        .and_then(|error| error.message.as_deref());
    if message.is_empty() {
        status.error = None;
    } else if known != Some(message) {
        status.error = Some(Error {
            time: Some(now.clone()),
            message: Some(message.to_owned()),
        });
    }
}
