//! Pure planning for one disk: its claim, its pod, its end.

use std::sync::Arc;
use std::time::Duration;

use import_report::Report;
use kubevirt_api::annotations;
use kubevirt_api::backup_restore::{
    Checksums, MarkState, RestoreMark, RestorePhase as Phase, RestoredVolume,
};
use kubevirt_api::quantity::Amount;
use reasons::Reason;

use super::claims;
use super::observe::Observed;
use super::plan::Step;
use crate::data_volume::{
    Container, ImporterPod, Permanence, PodPhase, capacity, is_block, is_deleting, is_of,
    pod_delay, pod_problem, pod_restarts, pod_waiting, progress_pause,
};
use crate::operation::RETRY;
use crate::view::Claim;

/// A disk of the backup, and what there is of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    /// As the status has it.
    pub(super) volume: RestoredVolume,
    pub(super) claim: Option<Arc<Claim>>,
    /// Why the claim takes no disk now: something else fills it.
    pub(super) filler: Option<String>,
    /// What uses the claim, or may begin to, besides the pod of this restore.
    pub(super) user: Option<String>,
    pub(super) pod: Option<Arc<ImporterPod>>,
    /// From the log of a running pod.
    pub(super) progress: Option<String>,
}

/// What to do for a disk, or what to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    Act(Step),
    Waits {
        reason: Reason,
        message: String,
        again: Option<Duration>,
    },
    Runs {
        message: String,
        again: Duration,
    },
    Done,
    Failed(Reason, String),
}

impl Disk {
    pub(super) fn mark(&self) -> Option<RestoreMark> {
        let claim = self.claim.as_deref()?;
        RestoreMark::parse(claim.annotation(annotations::BACKUP_RESTORE)?)
    }

    /// The mark of this restore.
    pub(super) fn own_mark(&self, uid: &str) -> Option<RestoreMark> {
        self.mark().filter(|mark| mark.uid == uid)
    }

    /// Whether a pod of it may be writing.
    pub(super) fn has_pod(&self) -> bool {
        let pod = self.pod.as_deref();
        pod.is_some_and(|pod| pod.phase != PodPhase::Succeeded)
    }

    pub(super) fn is_done(&self, uid: &str) -> bool {
        let mark = self.own_mark(uid);
        mark.is_some_and(|mark| mark.state == MarkState::Done)
    }

    /// Whether the status says that the disk is complete. What is in the claim then is nothing to this restore.
    pub(super) fn is_recorded(&self) -> bool {
        self.volume.phase == Some(Phase::Succeeded)
    }

    /// Whether the claim has lost its old disk to this restore, for all that is known.
    pub(super) fn has_begun(&self, uid: &str) -> bool {
        let is_reserved_only = |mark: &RestoreMark| mark.state == MarkState::Reserved;
        self.is_recorded()
            || self
                .own_mark(uid)
                .is_some_and(|mark| !is_reserved_only(&mark))
    }

    /// What the pod reported in the end.
    pub(super) fn report(&self) -> Option<Report> {
        let end = self.pod.as_deref()?.last_end.as_ref()?;
        Report::read(&end.message)
    }

    /// Whether an existing claim has the mark of this restore and its old disk: nothing was written yet, or what was
    /// written did not become the disk, and nothing writes any more.
    pub(super) fn is_untouched(&self, observed: &Observed) -> bool {
        if !observed.overwrites() {
            return false;
        }
        match self.own_mark(observed.uid()).map(|mark| mark.state) {
            Some(MarkState::Reserved) => true,
            Some(MarkState::Writing) => {
                let pod = self.pod.as_deref();
                let pod = pod.filter(|pod| pod.phase == PodPhase::Failed);
                pod.is_some_and(|pod| !fills_other(pod, self.claim.as_deref()))
                    && self.report().is_some_and(|report| report.is_intact)
            }
            Some(MarkState::Done) | None => false,
        }
    }

    /// What the status says next.
    pub(super) fn status(&self, uid: &str) -> RestoredVolume {
        let mut volume = self.volume.clone();
        if self.is_recorded() {
            return volume;
        }
        if self.is_done(uid) {
            let verified = self.own_mark(uid).and_then(|mark| mark.verified);
            volume.phase = Some(Phase::Succeeded);
            volume.progress = Some("100.0%".to_owned());
            volume.checksums = Some(match verified {
                Some(true) => Checksums::Verified,
                _ => Checksums::Missing,
            });
            return volume;
        }
        if let Some(pod) = &self.pod {
            volume.phase = Some(Phase::Restoring);
            volume.restarts = Some(pod_restarts(pod)).filter(|count| *count > 0);
            if self.progress.is_some() {
                volume.progress.clone_from(&self.progress);
            }
        }
        volume
    }

    /// `index` is its place in the list.
    pub(super) fn next(&self, observed: &Observed, index: usize) -> Next {
        let uid = observed.uid();
        if self.is_recorded() {
            return Next::Done;
        }
        let name = &self.volume.claim_name;
        let is_new = !observed.overwrites();
        let Some(claim) = self.claim.as_deref() else {
            return if is_new {
                Next::Act(Step::CreateClaim(index))
            } else {
                waits(format!("there is no persistentvolumeclaim {name}"))
            };
        };
        if self.is_done(uid) {
            return Next::Done;
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return waits(format!("persistentvolumeclaim {name} is being deleted"));
        }
        if claim.is_lost {
            let message = format!("persistentvolumeclaim {name} has lost its volume");
            return Next::Failed(Reason::ClaimLost, message);
        }
        if let Some(pod) = self.pod.as_deref() {
            return self.with_pod(observed, index, pod);
        }
        if is_new {
            if !is_of(claim, uid) {
                return waits(format!(
                    "persistentvolumeclaim {name} exists, and this restore did not create it: delete \
                     it, or make another restore with another claimName"
                ));
            }
            return Next::Act(Step::CreatePod(index));
        }
        self.without_pod(observed, index, claim)
    }

    /// A claim that existed before gets its mark, and then a pod.
    fn without_pod(&self, observed: &Observed, index: usize, claim: &Claim) -> Next {
        let name = &self.volume.claim_name;
        let uid = observed.uid();
        let state = self.mark().map(|mark| (mark.uid == uid, mark.state));
        // Its data is lost already, and it must not be left without a mark.
        if state == Some((true, MarkState::Writing)) {
            return Next::Act(Step::CreatePod(index));
        }
        let is_reserved = state == Some((true, MarkState::Reserved));
        if let Some(least) = too_small(claim, claims::bytes(&self.volume)) {
            let message = format!("persistentvolumeclaim {name} is smaller than the disk: {least}");
            return Next::Failed(Reason::DiskDoesNotFit, message);
        }
        let obstacle = match (&self.filler, &self.user) {
            (Some(filler), _) => Some(format!("persistentvolumeclaim {name}: {filler}")),
            (None, Some(user)) => Some(format!("persistentvolumeclaim {name} is in use by {user}")),
            (None, None) => None,
        };
        if let Some(obstacle) = obstacle {
            return waits(obstacle);
        }
        if let Some(rival) = &observed.rival
            && !(is_reserved && observed.has_begun())
        {
            return waits(format!(
                "VirtualMachineBackupRestore {rival} writes to claims of this restore first: wait for its end, \
                 or delete it"
            ));
        }
        match state {
            // Also if half a disk is there, so that nothing else can begin to use it.
            Some((true, _) | (false, MarkState::Writing)) => Next::Act(Step::Mark(index)),
            _ => Next::Act(Step::Reserve(index)),
        }
    }

    fn with_pod(&self, observed: &Observed, index: usize, pod: &ImporterPod) -> Next {
        if fills_other(pod, self.claim.as_deref()) {
            return self.replaced(index, pod);
        }
        match pod.phase {
            PodPhase::Succeeded => return self.written(observed, index),
            PodPhase::Failed => return self.failed_pod(observed, index, pod),
            PodPhase::Pending | PodPhase::Running => {}
        }
        let name = &self.volume.name;
        live_pod(observed, pod, format!("volume {name} is being restored"))
    }

    /// A pod that has written the disk. Without the mark, others may have changed the claim since.
    fn written(&self, observed: &Observed, index: usize) -> Next {
        let mark = self.own_mark(observed.uid());
        if mark.is_some_and(|mark| mark.state == MarkState::Writing) {
            return Next::Act(Step::Finish(index));
        }
        let name = &self.volume.claim_name;
        waits(format!(
            "persistentvolumeclaim {name} has lost the annotation {} of this restore, so its disk may be \
             another one: delete this restore, and make another",
            annotations::BACKUP_RESTORE
        ))
    }

    /// A pod that has failed: its program, an eviction, or a node that is gone.
    fn failed_pod(&self, observed: &Observed, index: usize, pod: &ImporterPod) -> Next {
        match ended_pod(observed, pod) {
            Ended::Final(reason, message) => {
                Next::Failed(reason, format!("volume {}: {message}", self.volume.name))
            }
            Ended::Replaced => self.replaced(index, pod),
            Ended::Stays(reason, message, again) => Next::Waits {
                reason,
                message: format!("volume {}: {message}", self.volume.name),
                again,
            },
        }
    }

    fn replaced(&self, index: usize, pod: &ImporterPod) -> Next {
        if is_deleting(pod) {
            let name = &self.volume.name;
            return waits(format!("an earlier pod of volume {name} is being deleted"));
        }
        Next::Act(Step::DeletePod(index))
    }
}

/// A pod that has not ended. The text says what it does when it runs.
pub(super) fn live_pod(observed: &Observed, pod: &ImporterPod, text: String) -> Next {
    let ended = pod.last_end.as_ref().filter(|end| end.exit_code != 0);
    match (&pod.container, ended) {
        (Container::Running { since }, _) => Next::Runs {
            message: text,
            again: progress_pause(*since, observed.now),
        },
        (_, Some(end)) => {
            // Its phase says soon that it has failed.
            let (reason, message, _) = pod_problem(end);
            Next::Waits {
                reason,
                message,
                again: None,
            }
        }
        (Container::Waiting { reason, message }, None) => starting(reason, message),
        (Container::Ended | Container::Unknown, None) => unscheduled(pod),
    }
}

/// A pod that has failed.
pub(super) enum Ended {
    Final(Reason, String),
    /// It is time for another one.
    Replaced,
    Stays(Reason, String, Option<Duration>),
}

pub(super) fn ended_pod(observed: &Observed, pod: &ImporterPod) -> Ended {
    let reported = pod.last_end.as_ref().filter(|end| end.exit_code != 0);
    let (reason, message) = match reported.map(pod_problem) {
        Some((reason, message, Permanence::Final)) => return Ended::Final(reason, message),
        Some((reason, message, Permanence::Retried)) => (reason, message),
        None => {
            let why = pod.message.as_deref().unwrap_or("its node gave no reason");
            (Reason::ImportFailed, format!("its pod failed: {why}"))
        }
    };
    if is_deleting(pod) {
        return Ended::Stays(reason, message, None);
    }
    let created = pod.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let ended = pod.last_end.as_ref().and_then(|end| end.at).or(created);
    let due = ended.unwrap_or(observed.now) + pod_delay(pod_restarts(pod));
    if due <= observed.now {
        return Ended::Replaced;
    }
    let left = observed.now.duration_until(due).unsigned_abs();
    Ended::Stays(reason, message, Some(left))
}

fn starting(reason: &str, message: &str) -> Next {
    let verdict = pod_waiting(reason, message);
    Next::Waits {
        reason: verdict.reason.unwrap_or(Reason::ImportScheduled),
        message: verdict.message,
        again: None,
    }
}

fn unscheduled(pod: &ImporterPod) -> Next {
    let reason = pod.unschedulable.as_ref().map(|_| Reason::Unschedulable);
    let message = pod.unschedulable.as_deref();
    let message = message.unwrap_or("the importer's pod is starting");
    Next::Waits {
        reason: reason.unwrap_or(Reason::ImportScheduled),
        message: message.to_owned(),
        again: None,
    }
}

fn waits(message: String) -> Next {
    Next::Waits {
        reason: Reason::BackupRestoreWaits,
        message,
        again: Some(RETRY),
    }
}

/// The size that the claim would need, if it is known to be smaller. What a file system needs for itself shows when
/// the disk is written.
fn too_small(claim: &Claim, disk: u64) -> Option<String> {
    let found = capacity(claim)?;
    (found < disk).then(|| {
        let unit = if is_block(claim) { "device" } else { "claim" };
        let (found, disk) = (
            Amount::of(found).to_binary().0,
            Amount::of(disk).to_binary().0,
        );
        format!("the {unit} has {found}, and the disk {disk}")
    })
}

fn fills_other(pod: &ImporterPod, claim: Option<&Claim>) -> bool {
    let all = pod.metadata.annotations.as_ref();
    let filled = all.and_then(|all| all.get(annotations::IMPORT_CLAIM));
    let own = claim.and_then(|claim| claim.metadata.uid.as_ref());
    filled != own
}
