//! Pure planning: maps an observed restore to its next step and to what users see.

use std::collections::BTreeSet;
use std::time::Duration;

use apimachinery::names::is_subdomain;
use import_report::Report;
use kubevirt_api::backup_restore::{MarkState, RestoreMark, RestorePhase as Phase, RestoredVolume};
use reasons::Reason;

use super::claims;
use super::disk::{Ended, Next, ended_pod, live_pod};
use super::observe::{Observed, has_finalizer};
use super::source::Source;
use super::status::is_finished;
use crate::data_volume::{ImporterPod, Permanence, PodPhase, is_deleting, pod_problem};
use crate::operation;

/// Pods of one restore that write at once.
const MAX_PODS: usize = 4;
/// What the report of the inspecting pod has room for.
const MAX_VOLUMES: usize = 32;

/// Indices are those of the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    AddFinalizer,
    RemoveFinalizer,
    CreateInspector,
    DeleteInspector,
    CreateClaim(usize),
    /// Marks a claim that nothing uses, so that nothing begins to.
    Reserve(usize),
    /// Takes the mark back: the claim has its old disk, and the restore does not write to it now.
    Release(usize),
    /// Marks a claim as one without a complete disk.
    Mark(usize),
    CreatePod(usize),
    DeletePod(usize),
    /// Marks the disk as complete, and gives the claim away.
    Finish(usize),
}

/// What users see.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Progress {
    /// The status stays as it is.
    Kept,
    /// Where the backup is, which is fixed from then on.
    Found {
        claim: String,
        directory: String,
    },
    /// A pod inspects the backup.
    Inspecting {
        reason: Reason,
        message: String,
    },
    /// The disks, which are fixed from then on.
    Known(Vec<RestoredVolume>),
    Waits {
        phase: Phase,
        reason: Reason,
        message: String,
    },
    Restoring {
        volumes: Vec<RestoredVolume>,
        reason: Reason,
        message: String,
    },
    /// A disk is complete, which is on record before anything else is done.
    Recorded(Vec<RestoredVolume>),
    Complete(Vec<RestoredVolume>),
    Failed(Reason, String),
}

impl Progress {
    /// Whether the next step follows from the status alone.
    pub(super) fn leads_on(&self) -> bool {
        matches!(
            self,
            Self::Found { .. }
                | Self::Known(_)
                | Self::Recorded(_)
                | Self::Complete(_)
                | Self::Failed(..)
        )
    }
}

pub(super) type Plan = operation::Plan<Step, Progress>;

pub(super) fn plan(observed: &Observed) -> Plan {
    let is_deleted = observed.restore.metadata.deletion_timestamp.is_some();
    if is_deleted || is_finished(&observed.restore) {
        return clear_up(observed);
    }
    if observed.overwrites() && !has_finalizer(&observed.restore) {
        return Plan::step(Step::AddFinalizer, Progress::Kept);
    }
    if !observed.disks.is_empty() {
        return match observed.inspector.as_deref() {
            Some(pod) if !is_deleting(pod) => Plan::step(Step::DeleteInspector, Progress::Kept),
            _ => restore(observed),
        };
    }
    let status = observed.restore.status.as_ref();
    let is_known = status.is_some_and(|status| status.directory.is_some());
    if is_known && let Some(pod) = observed.inspector.as_deref() {
        return inspect(observed, pod);
    }
    match &observed.source {
        Source::Unusable(message) => failed(Reason::BackupRestoreNotPossible, message.clone()),
        Source::Waits(message) => Plan {
            requeue_in: Some(operation::RETRY),
            ..waits(Phase::Pending, Reason::BackupRestoreWaits, message.clone())
        },
        Source::Found { claim, directory } if !is_known => Plan::state(Progress::Found {
            claim: claim.clone(),
            directory: directory.clone(),
        }),
        Source::Found { .. } => Plan::step(Step::CreateInspector, Progress::Kept),
    }
}

fn failed(reason: Reason, message: impl Into<String>) -> Plan {
    Plan::state(Progress::Failed(reason, message.into()))
}

fn waits(phase: Phase, reason: Reason, message: String) -> Plan {
    Plan::state(Progress::Waits {
        phase,
        reason,
        message,
    })
}

/// Deletes pods, and takes marks back of claims that still have their old data. New claims without a complete disk go
/// with the restore.
fn clear_up(observed: &Observed) -> Plan {
    let is_left = |pod: Option<&ImporterPod>| pod.is_some_and(|pod| !is_deleting(pod));
    if is_left(observed.inspector.as_deref()) {
        return Plan::step(Step::DeleteInspector, Progress::Kept);
    }
    for (index, disk) in observed.disks.iter().enumerate() {
        // What the pod reported goes with it.
        if disk.is_untouched(observed) {
            return Plan::step(Step::Release(index), Progress::Kept);
        }
        if is_left(disk.pod.as_deref()) {
            return Plan::step(Step::DeletePod(index), Progress::Kept);
        }
    }
    if has_finalizer(&observed.restore) {
        return Plan::step(Step::RemoveFinalizer, Progress::Kept);
    }
    Plan::state(Progress::Kept)
}

fn inspect(observed: &Observed, pod: &ImporterPod) -> Plan {
    let inspecting = |reason: Reason, message: String, again: Option<Duration>| Plan {
        requeue_in: again,
        ..Plan::state(Progress::Inspecting { reason, message })
    };
    match pod.phase {
        PodPhase::Succeeded => return known(observed, pod),
        PodPhase::Failed => {
            return match ended_pod(observed, pod) {
                Ended::Final(reason, message) => failed(reason, message),
                Ended::Replaced => Plan::step(Step::DeleteInspector, Progress::Kept),
                Ended::Stays(reason, message, again) => inspecting(reason, message, again),
            };
        }
        PodPhase::Pending | PodPhase::Running => {}
    }
    // A pod of an earlier version starts again.
    let ended = pod.last_end.as_ref().filter(|end| end.exit_code != 0);
    if let Some((reason, message, Permanence::Final)) = ended.map(pod_problem) {
        return failed(reason, message);
    }
    match live_pod(observed, pod, "the backup is being inspected".to_owned()) {
        Next::Runs { message, again } => inspecting(Reason::ImportInProgress, message, Some(again)),
        Next::Waits {
            reason,
            message,
            again,
        } => inspecting(reason, message, again),
        Next::Act(_) | Next::Done | Next::Failed(..) => Plan::state(Progress::Kept),
    }
}

/// The disks that the inspecting pod has reported.
fn known(observed: &Observed, pod: &ImporterPod) -> Plan {
    let restore = observed.restore.as_ref();
    let report = pod.last_end.as_ref();
    let report = report.and_then(|end| Report::read(&end.message));
    let found = report.map(|report| report.volumes).unwrap_or_default();
    if found.is_empty() || found.len() > MAX_VOLUMES {
        let message = "the backup has no volumes, or too many: list up to 32 in spec.volumes";
        return failed(Reason::BackupNotUsable, message);
    }
    let mut names = BTreeSet::new();
    let mut volumes = Vec::new();
    for (name, bytes) in found {
        let claim = claims::name(restore, &name);
        if !is_subdomain(&claim) {
            let message = format!(
                "{claim:?} is no name for a claim: give volume {name} a claimName in spec.volumes"
            );
            return failed(Reason::BackupRestoreNotPossible, message);
        }
        if !names.insert(claim.clone()) || observed.source_claim() == Some(&claim) {
            let message = format!(
                "claim {claim} would get volume {name}, and has another one or the backup: give \
                 each volume a claimName of its own in spec.volumes"
            );
            return failed(Reason::BackupRestoreNotPossible, message);
        }
        let template = claims::template(restore, &name);
        if let Err(problem) = claims::disk_bytes(&template, bytes)
            && !observed.overwrites()
        {
            let message = format!("volume {name}: {problem}");
            return failed(Reason::BackupRestoreNotPossible, message);
        }
        let Ok(disk_bytes) = i64::try_from(bytes) else {
            let message = format!("the disk of volume {name} is too large");
            return failed(Reason::BackupNotUsable, message);
        };
        volumes.push(RestoredVolume {
            name,
            claim_name: claim,
            disk_bytes,
            phase: Some(Phase::Pending),
            ..RestoredVolume::default()
        });
    }
    Plan::state(Progress::Known(volumes))
}

/// A step towards a disk that needs the backup waits for it. What the pods have written is completed without it.
fn with_source(observed: &Observed, next: Next) -> Next {
    use Step::{CreateClaim, CreatePod, Mark, Reserve};
    let Next::Act(CreateClaim(_) | Reserve(_) | Mark(_) | CreatePod(_)) = next else {
        return next;
    };
    match &observed.source {
        Source::Found { .. } => next,
        Source::Waits(message) => Next::Waits {
            reason: Reason::BackupRestoreWaits,
            message: message.clone(),
            again: Some(operation::RETRY),
        },
        Source::Unusable(message) => {
            Next::Failed(Reason::BackupRestoreNotPossible, message.clone())
        }
    }
}

/// Whether claims may be overwritten: all or none, so that no VM gets disks of different times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    /// A claim cannot be reserved now. The others are not either: their VMs may start meanwhile.
    Waits,
    /// Claims are being reserved.
    Partial,
    /// All are reserved, or were when the first was overwritten.
    Complete,
}

fn readiness(observed: &Observed, all: &[Next]) -> Readiness {
    if !observed.overwrites() || observed.has_begun() {
        return Readiness::Complete;
    }
    let can_be_reserved = |next: &Next| matches!(next, Next::Act(Step::Reserve(_) | Step::Mark(_)));
    if !all.iter().all(can_be_reserved) {
        return Readiness::Waits;
    }
    let is_reserved = |next: &Next| matches!(next, Next::Act(Step::Mark(_)));
    if all.iter().all(is_reserved) {
        Readiness::Complete
    } else {
        Readiness::Partial
    }
}

/// Takes back the mark of a claim that is reserved only.
fn release(observed: &Observed) -> Option<Step> {
    let is_reserved = |mark: RestoreMark| mark.state == MarkState::Reserved;
    let mut disks = observed.disks.iter();
    let index = disks.position(|disk| disk.own_mark(observed.uid()).is_some_and(is_reserved))?;
    Some(Step::Release(index))
}

fn restore(observed: &Observed) -> Plan {
    let disks = observed.disks.iter().enumerate();
    let all: Vec<Next> = disks
        .map(|(index, disk)| with_source(observed, disk.next(observed, index)))
        .collect();
    let uid = observed.uid();
    let volumes = observed.disks.iter().map(|disk| disk.status(uid)).collect();
    if all.iter().all(|next| *next == Next::Done) {
        return Plan::state(Progress::Complete(volumes));
    }
    let mut disks = observed.disks.iter();
    if disks.any(|disk| disk.is_done(uid) && !disk.is_recorded()) {
        return Plan::state(Progress::Recorded(volumes));
    }
    for next in &all {
        if let Next::Failed(reason, message) = next {
            return failed(*reason, message.clone());
        }
    }
    let pods = observed.disks.iter().filter(|disk| disk.has_pod()).count();
    let steps = all.iter().filter_map(|next| match next {
        Next::Act(step) => Some(*step),
        _ => None,
    });
    let step = match readiness(observed, &all) {
        Readiness::Waits => release(observed),
        readiness => steps.into_iter().find(|step| match step {
            // A claim loses its old disk, for all that is known, once it is marked: not before its pod may be created.
            Step::Mark(_) => readiness == Readiness::Complete && pods < MAX_PODS,
            Step::CreatePod(_) => pods < MAX_PODS,
            _ => true,
        }),
    };
    if let Some(step) = step {
        return Plan::step(step, Progress::Kept);
    }
    let (mut reason, mut text) = (Reason::ImportInProgress, String::new());
    let mut again: Option<Duration> = None;
    for next in &all {
        let due = match next {
            Next::Runs { message, again } => {
                if text.is_empty() {
                    text.clone_from(message);
                }
                Some(*again)
            }
            // What has to wait matters more than what goes on.
            Next::Waits {
                reason: why,
                message,
                again,
            } => {
                if reason == Reason::ImportInProgress {
                    (reason, text) = (*why, message.clone());
                }
                *again
            }
            _ => None,
        };
        again = again.into_iter().chain(due).min();
    }
    Plan {
        requeue_in: again,
        ..Plan::state(Progress::Restoring {
            volumes,
            reason,
            message: text,
        })
    }
}
