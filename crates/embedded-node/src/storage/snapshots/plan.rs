//! Pure planning: the next step for one volume snapshot.

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
    jiff::Timestamp,
};
use kubevirt_api::volume_snapshot::{
    VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshotError,
    VolumeSnapshotStatus, class_of_driver,
};

use super::{
    super::{
        PROVISIONER,
        claim::{self, has_finalizer},
        volume::PROVISIONED_BY,
    },
    SNAPSHOT_PROTECTION,
};

/// The observed snapshot and the objects around it.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) snapshot: &'a VolumeSnapshot,
    /// The content that the snapshot has or is to have.
    pub(super) content: Option<&'a VolumeSnapshotContent>,
    pub(super) classes: &'a [std::sync::Arc<VolumeSnapshotClass>],
    pub(super) claim: Option<&'a PersistentVolumeClaim>,
    /// The volume of the claim.
    pub(super) volume: Option<&'a PersistentVolume>,
    pub(super) usage: Usage,
    pub(super) now: Timestamp,
}

/// Whether a claim that has no volume yet is to be a copy of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    Unused,
    Wanted,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Protect,
    Unprotect,
    CreateContent(NewContent),
    /// Writes the snapshot's UID into a content of an administrator.
    TakeContent,
    DeleteContent,
    SetStatus(Box<VolumeSnapshotStatus>),
}

/// A content to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewContent {
    pub(super) class: String,
    pub(super) deletion_policy: String,
    pub(super) volume: String,
    pub(super) mode: &'static str,
}

/// The name of the content that is created for a snapshot.
pub(super) fn content_name(snapshot: &VolumeSnapshot) -> String {
    let uid = snapshot.metadata.uid.as_deref().unwrap_or_default();
    format!("snapcontent-{uid}")
}

pub(super) fn next(observed: &Observed<'_>) -> Option<Step> {
    let snapshot = observed.snapshot;
    let protected = has_finalizer(&snapshot.metadata, SNAPSHOT_PROTECTION);
    if snapshot.metadata.deletion_timestamp.is_some() {
        return deletion(observed, protected);
    }
    if let Some(content) = observed.content {
        if content.spec.driver != PROVISIONER {
            return None;
        }
        return match is_bound(observed, content) {
            _ if !protected => Some(Step::Protect),
            Binding::Bound => set_status(observed, status_of(observed, content)),
            Binding::Free => Some(Step::TakeContent),
            Binding::Foreign => fail(
                observed,
                "its content belongs to another snapshot: correct volumeSnapshotRef of the content",
            ),
        };
    }
    let status = snapshot.status.as_ref();
    if status.is_some_and(|status| status.bound_volume_snapshot_content_name.is_some()) {
        // A new copy would have the data of another moment.
        return protected
            .then(|| fail(observed, "its VolumeSnapshotContent is gone"))
            .flatten();
    }
    let source = &snapshot.spec.source;
    let Some(claim_name) = source.persistent_volume_claim_name.as_deref() else {
        let name = source.volume_snapshot_content_name.as_deref()?;
        return protected
            .then(|| fail(observed, &format!("snapshot content {name:?} not found")))
            .flatten();
    };
    let class = match class(observed) {
        Ok(class) if class.driver != PROVISIONER => return None,
        Ok(class) => class,
        // Another snapshotter may know it.
        Err(_) if observed.volume.is_some_and(|volume| !is_ours(volume)) => return None,
        Err(problem) => return fail(observed, &problem),
    };
    if !protected {
        return Some(Step::Protect);
    }
    let Some(claim) = observed.claim else {
        return fail(observed, &format!("claim {claim_name:?} not found"));
    };
    if claim::phase(claim) != "Bound" {
        let problem = format!(
            "claim {claim_name:?} has no volume yet: it gets one when a pod uses it for the first time"
        );
        return fail(observed, &problem);
    }
    let volume = observed.volume?;
    if !is_ours(volume) {
        let problem = format!(
            "the volume of claim {claim_name:?} is not of provisioner {PROVISIONER}: use the class of \
             its driver"
        );
        return fail(observed, &problem);
    }
    let spec = volume.spec.as_ref()?;
    Some(Step::CreateContent(NewContent {
        class: class.metadata.name.clone()?,
        deletion_policy: class.deletion_policy.clone(),
        volume: volume.metadata.name.clone()?,
        mode: claim::volume_mode(spec.volume_mode.as_deref()).name(),
    }))
}

fn deletion(observed: &Observed<'_>, protected: bool) -> Option<Step> {
    // A claim that has no volume yet would never get its data.
    if !protected || observed.usage == Usage::Wanted {
        return None;
    }
    match observed.content {
        Some(content)
            if is_bound(observed, content) == Binding::Bound
                && content.spec.deletion_policy != "Retain" =>
        {
            let is_deleted = content.metadata.deletion_timestamp.is_some();
            (!is_deleted).then_some(Step::DeleteContent)
        }
        _ => Some(Step::Unprotect),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    Bound,
    /// The content names the snapshot, not its UID.
    Free,
    Foreign,
}

fn is_bound(observed: &Observed<'_>, content: &VolumeSnapshotContent) -> Binding {
    let (metadata, reference) = (
        &observed.snapshot.metadata,
        &content.spec.volume_snapshot_ref,
    );
    if reference.name != metadata.name || reference.namespace != metadata.namespace {
        return Binding::Foreign;
    }
    match reference.uid.as_deref().filter(|uid| !uid.is_empty()) {
        None => Binding::Free,
        uid if uid == metadata.uid.as_deref() => Binding::Bound,
        Some(_) => Binding::Foreign,
    }
}

/// The class that the snapshot names, or the default class of the volume's driver.
fn class<'a>(observed: &Observed<'a>) -> Result<&'a VolumeSnapshotClass, String> {
    let classes = || observed.classes.iter().map(AsRef::as_ref);
    if let Some(name) = &observed.snapshot.spec.volume_snapshot_class_name {
        let mut all = classes();
        return all
            .find(|class: &&VolumeSnapshotClass| class.metadata.name.as_ref() == Some(name))
            .ok_or_else(|| format!("volumesnapshotclass {name:?} not found"));
    }
    class_of_driver(classes(), PROVISIONER).ok_or_else(|| {
        format!(
            "no VolumeSnapshotClass is the default of driver {PROVISIONER}: set \
             spec.volumeSnapshotClassName, or mark one class as default"
        )
    })
}

fn is_ours(volume: &PersistentVolume) -> bool {
    let annotations = volume.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(PROVISIONED_BY))
        .is_some_and(|by| by == PROVISIONER)
}

fn status_of(observed: &Observed<'_>, content: &VolumeSnapshotContent) -> VolumeSnapshotStatus {
    let theirs = content.status.clone().unwrap_or_default();
    let moment = theirs.creation_time.and_then(|nanos| {
        let moment = Timestamp::from_nanosecond(i128::from(nanos)).ok()?;
        // The wire format has whole seconds.
        Timestamp::from_second(moment.as_second()).ok().map(Time)
    });
    let before = observed.snapshot.status.clone().unwrap_or_default();
    VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: content.metadata.name.clone(),
        creation_time: moment.or(before.creation_time),
        ready_to_use: Some(theirs.ready_to_use == Some(true)),
        restore_size: theirs.restore_size.map(|size| Quantity(size.to_string())),
        error: theirs.error,
    }
}

fn fail(observed: &Observed<'_>, message: &str) -> Option<Step> {
    let mut status = observed.snapshot.status.clone().unwrap_or_default();
    let shown = status
        .error
        .as_ref()
        .and_then(|error| error.message.as_deref());
    if shown == Some(message) {
        return None;
    }
    status.ready_to_use = Some(false);
    status.error = Some(VolumeSnapshotError {
        time: Some(Time(observed.now)),
        message: Some(message.to_owned()),
    });
    set_status(observed, status)
}

fn set_status(observed: &Observed<'_>, status: VolumeSnapshotStatus) -> Option<Step> {
    let is_shown = observed.snapshot.status.as_ref() == Some(&status);
    (!is_shown).then(|| Step::SetStatus(Box::new(status)))
}
