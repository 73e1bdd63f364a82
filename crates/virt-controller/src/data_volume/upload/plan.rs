//! Pure planning: maps a claim and the pod of its upload to the steps of one reconcile.

use std::time::Duration;

use kubevirt_api::annotations;
use reasons::Reason;

use super::super::ended::{self, delay, is_deleting, problem, restarts};
use super::super::plan::Verdict;
use super::super::view::{Container, ImporterPod, PodPhase};
use super::observe::Observed;
use crate::view::Claim;

/// The phase of a claim whose upload is complete.
pub(in super::super) const SUCCEEDED: &str = "Succeeded";
/// The phase of a claim that cannot receive an upload yet.
pub(super) const PENDING: &str = "Pending";
const ARCHIVE: &str = "archive";
/// How often to look whether the claim is still in use.
const IN_USE_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    CreatePod,
    DeletePod,
}

/// What the annotations of the claim say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// Of the pod.
    pub(super) phase: &'static str,
    /// Whether an upload can be sent, and why not.
    pub(super) running: Verdict,
    /// How often pods of the claim have ended, once one is to be replaced.
    pub(super) restarts: Option<i32>,
}

/// The state is written before the steps: it says nothing that only a step makes true.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// `None` leaves the last one.
    pub(super) state: Option<State>,
    pub(super) steps: Vec<Step>,
    pub(super) requeue_in: Option<Duration>,
}

/// Whether the claim is, or was, made for an upload.
pub(super) fn is_target(claim: &Claim) -> bool {
    claim.annotation(annotations::CDI_UPLOAD_TARGET).is_some()
}

/// Whether no pod may be created for the claim any more.
pub(super) fn is_over(claim: &Claim) -> bool {
    let phase = claim.annotation(annotations::CDI_POD_PHASE);
    claim.metadata.deletion_timestamp.is_some()
        || phase == Some(SUCCEEDED)
        || claim.annotation(annotations::CDI_POPULATED_FOR).is_some()
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let pod = observed.pod.as_deref();
    if is_over(&observed.claim) {
        return match pod {
            Some(pod) if !is_deleting(pod) => Plan::default().step(Step::DeletePod),
            _ => Plan::default(),
        };
    }
    match pod {
        Some(pod) => with_pod(observed, pod),
        None => without_pod(observed),
    }
}

fn without_pod(observed: &Observed) -> Plan {
    let claim = &observed.claim;
    if claim.annotation(annotations::CDI_CONTENT_TYPE) == Some(ARCHIVE) {
        let message = "archives cannot be uploaded: upload a disk image (contentType kubevirt)";
        return Plan::waits(Some(Reason::ImportNotSupported), message);
    }
    if claim.is_lost {
        return Plan::waits(Some(Reason::ClaimLost), "the claim has lost its volume");
    }
    if !claim.is_bound {
        if !observed.waits_for_consumer {
            return Plan::waits(None, "the claim is not bound to a volume yet");
        }
        if !binds_at_once(claim) {
            let message = "the upload can begin when a VM or a pod uses the claim";
            return Plan::waits(Some(Reason::WaitForFirstConsumer), message);
        }
    }
    if let Some(user) = &observed.user {
        let message = format!("pod {user} uses the claim, which the upload would overwrite");
        let mut plan = Plan::waits(Some(Reason::UploadTargetInUse), message);
        plan.requeue_in = Some(IN_USE_PAUSE);
        return plan;
    }
    Plan::waits(None, "the pod that receives the upload is being created").step(Step::CreatePod)
}

fn with_pod(observed: &Observed, pod: &ImporterPod) -> Plan {
    match pod.phase {
        PodPhase::Succeeded => {
            let running = Verdict {
                holds: false,
                reason: Some(Reason::Completed),
                message: "Upload Complete".to_owned(),
            };
            return Plan::state(SUCCEEDED, running);
        }
        PodPhase::Failed => return failed_pod(observed, pod),
        PodPhase::Pending | PodPhase::Running => {}
    }
    if is_deleting(pod) {
        return Plan::waits(None, "the pod that received the upload is being deleted");
    }
    match &pod.container {
        Container::Running { .. } => {
            let refused = observed.claim.annotation(annotations::UPLOAD_REFUSED);
            let message = refused.map(|why| format!("the last uploaded file was refused: {why}"));
            let running = Verdict {
                holds: true,
                reason: refused.map(|_| Reason::UploadRefused),
                message: message.unwrap_or_else(|| "an upload can be sent".to_owned()),
            };
            Plan::state("Running", running)
        }
        Container::Waiting { reason, message } => {
            let verdict = ended::waiting(reason, message);
            Plan::waits(verdict.reason, verdict.message)
        }
        Container::Ended | Container::Unknown => {
            let end = pod.last_end.as_ref().filter(|end| end.exit_code != 0);
            if let Some((reason, message, _)) = end.map(problem) {
                return Plan::waits(Some(reason), message);
            }
            let message = pod.unschedulable.clone();
            let reason = message.as_ref().map(|_| Reason::Unschedulable);
            let message = message.unwrap_or_else(|| "the pod is starting".to_owned());
            Plan::waits(reason, message)
        }
    }
}

/// A pod that has ended without its container's consent: an eviction, or a node that is gone.
fn failed_pod(observed: &Observed, pod: &ImporterPod) -> Plan {
    let why = pod.message.as_deref().unwrap_or("its node gave no reason");
    let message = format!("the pod that received the upload failed: {why}");
    let mut plan = Plan::waits(Some(Reason::ImportFailed), message);
    if is_deleting(pod) {
        return plan;
    }
    let created = pod.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let ended = pod.last_end.as_ref().and_then(|end| end.at).or(created);
    let due = ended.unwrap_or(observed.now) + delay(restarts(pod));
    if due <= observed.now {
        // The next pod waits longer if it ends as well.
        if let Some(state) = &mut plan.state {
            state.restarts = Some(restarts(pod));
        }
        return plan.step(Step::DeletePod);
    }
    let left = observed.now.duration_until(due);
    plan.requeue_in = Some(left.unsigned_abs());
    plan
}

fn binds_at_once(claim: &Claim) -> bool {
    let asked = claim.annotation(annotations::CDI_BIND_IMMEDIATE_REQUESTED);
    asked.is_some_and(|value| value != "false")
}

impl Plan {
    fn state(phase: &'static str, running: Verdict) -> Self {
        Self {
            state: Some(State {
                phase,
                running,
                restarts: None,
            }),
            ..Self::default()
        }
    }

    fn waits(reason: Option<Reason>, message: impl Into<String>) -> Self {
        let running = Verdict {
            holds: false,
            reason,
            message: message.into(),
        };
        Self::state(PENDING, running)
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}
