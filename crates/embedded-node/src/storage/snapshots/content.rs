//! Pure planning: the next step for one content of a volume snapshot.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kubevirt_api::volume_snapshot::{
    VolumeSnapshotContent, VolumeSnapshotContentStatus, VolumeSnapshotError,
};

use super::{
    super::{PROVISIONER, claim::has_finalizer},
    CONTENT_PROTECTION,
    files::Record,
};

/// The snapshot that the content names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The content has no UID of a snapshot yet.
    Unknown,
    There,
    Deleting,
    Gone,
}

/// The data of the content on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Data {
    Complete(Record),
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Protect,
    Unprotect,
    /// Copies the volume of that name.
    Take(String),
    /// Deletes the object; its data follows.
    Delete,
    /// Deletes the data of an object that is being deleted.
    Erase,
    SetStatus(Box<VolumeSnapshotContentStatus>),
}

/// The handle of the content's copy.
pub(super) fn handle(content: &VolumeSnapshotContent) -> String {
    if let Some(handle) = &content.spec.source.snapshot_handle {
        return handle.clone();
    }
    let uid = content.spec.volume_snapshot_ref.uid.as_deref();
    format!("snapshot-{}", uid.unwrap_or_default())
}

pub(super) fn next(
    content: &VolumeSnapshotContent,
    owner: Owner,
    data: &Data,
    now: Timestamp,
) -> Option<Step> {
    if content.spec.driver != PROVISIONER {
        return None;
    }
    let protected = has_finalizer(&content.metadata, CONTENT_PROTECTION);
    let is_kept = content.spec.deletion_policy == "Retain";
    if content.metadata.deletion_timestamp.is_some() {
        return match (protected, owner) {
            (false, _) | (_, Owner::There) => None,
            (true, _) if is_kept => Some(Step::Unprotect),
            (true, _) => Some(Step::Erase),
        };
    }
    if !protected {
        return Some(Step::Protect);
    }
    if owner == Owner::Gone && !is_kept {
        return Some(Step::Delete);
    }
    match (data, &content.spec.source.volume_handle) {
        (Data::Complete(record), _) => set_status(content, complete(content, record)),
        (Data::Missing, Some(volume)) => {
            let status = content.status.as_ref();
            // A new copy would have the data of another moment.
            if status.is_some_and(|status| status.snapshot_handle.is_some()) {
                return failed(content, "the data of the snapshot is not on this host", now);
            }
            (owner == Owner::There).then(|| Step::Take(volume.clone()))
        }
        (Data::Missing, None) => failed(
            content,
            "this host has no snapshot of this snapshotHandle",
            now,
        ),
    }
}

fn complete(content: &VolumeSnapshotContent, record: &Record) -> VolumeSnapshotContentStatus {
    VolumeSnapshotContentStatus {
        snapshot_handle: Some(handle(content)),
        creation_time: Some(record.created),
        ready_to_use: Some(true),
        restore_size: i64::try_from(record.bytes).ok(),
        error: None,
    }
}

/// Shows why the content is not ready.
pub(super) fn failed(
    content: &VolumeSnapshotContent,
    message: &str,
    now: Timestamp,
) -> Option<Step> {
    let mut status = content.status.clone().unwrap_or_default();
    let shown = status
        .error
        .as_ref()
        .and_then(|error| error.message.as_deref());
    if shown == Some(message) && status.ready_to_use == Some(false) {
        return None;
    }
    status.ready_to_use = Some(false);
    status.error = Some(VolumeSnapshotError {
        time: Some(Time(now)),
        message: Some(message.to_owned()),
    });
    set_status(content, status)
}

fn set_status(
    content: &VolumeSnapshotContent,
    status: VolumeSnapshotContentStatus,
) -> Option<Step> {
    let is_shown = content.status.as_ref() == Some(&status);
    (!is_shown).then(|| Step::SetStatus(Box::new(status)))
}
