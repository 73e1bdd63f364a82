//! Pure planning: maps the observed state to the steps of one reconcile.
//!
//! **Invariants**: nothing is imported onto a claim that is marked as populated; a claim that is about to
//! disappear does not count as populated, nor does one because of a pod that filled an earlier claim of its
//! name; the end of a data volume is in its status before its pod is deleted.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kubevirt_api::annotations;
use kubevirt_api::data_volume_status::{DataVolume as Whole, DataVolumePhase as Phase};
use kubevirt_api::quantity::Amount;
use reasons::Reason;

use super::ended::{Permanence, delay, is_deleting, problem, restarts, waiting};
use super::observe::{Observed, Origin, binds_at_once, is_of};
use super::request::{Source, Unmet};
use super::transfer::Transfer;
use super::view::{Container, ImporterPod, PodPhase};
use super::{claim, upload};
use crate::data_source::Target;
use crate::view::Claim;

/// How often to look whether a claim to copy is still in use.
const SOURCE_PAUSE: Duration = Duration::from_secs(10);
/// How often to look whether a source in another namespace is exported.
const TRANSFER_PAUSE: Duration = Duration::from_secs(5);
/// The progress of an import is read at intervals that grow with its duration.
const SHORTEST_PAUSE: i64 = 2;
const LONGEST_PAUSE: i64 = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    CreateClaim,
    /// Become the owner of a claim that is populated already.
    AdoptClaim,
    /// Export a source in another namespace.
    OpenSource,
    /// Delete an export that was not made to the end.
    CloseSource,
    CreatePod,
    /// Record on the claim that it is populated.
    MarkClaim,
    DeletePod,
}

/// A condition: whether it holds, why, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(super) holds: bool,
    pub(crate) reason: Option<Reason>,
    pub(crate) message: String,
}

/// What the status says after the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) phase: Phase,
    pub(super) running: Verdict,
    /// `None` leaves the last one.
    pub(super) progress: Option<String>,
    /// `None` leaves the last one.
    pub(super) restarts: Option<i32>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// `None` if the data volume has come to its end, or is being deleted.
    pub(super) outcome: Option<Outcome>,
    pub(super) requeue_in: Option<Duration>,
}

impl Verdict {
    pub(super) fn no(reason: Option<Reason>, message: impl Into<String>) -> Self {
        Self {
            holds: false,
            reason,
            message: message.into(),
        }
    }
}

impl Plan {
    fn state(phase: Phase, running: Verdict) -> Self {
        Self {
            outcome: Some(Outcome {
                phase,
                running,
                progress: None,
                restarts: None,
            }),
            ..Self::default()
        }
    }

    fn waits(reason: Option<Reason>, message: impl Into<String>) -> Self {
        Self::state(Phase::Pending, Verdict::no(reason, message))
    }

    fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self::state(Phase::Failed, Verdict::no(Some(reason), message))
    }

    fn succeeded() -> Self {
        let verdict = Verdict::no(Some(Reason::Completed), "Import Complete");
        let mut plan = Self::state(Phase::Succeeded, verdict);
        if let Some(outcome) = &mut plan.outcome {
            outcome.progress = Some("100.0%".to_owned());
        }
        plan
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

pub(super) fn plan(observed: &Observed) -> Plan {
    if observed.volume.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    if observed.whole().is_none() || observed.volume.phase == Phase::Failed {
        let is_left = observed.pod.as_ref().is_some_and(|pod| !is_deleting(pod));
        let plan = Plan::default();
        return if is_left {
            plan.step(Step::DeletePod)
        } else {
            plan
        };
    }
    match observed.claim.as_deref() {
        None => without_claim(observed),
        Some(claim) => with_claim(observed, claim),
    }
}

fn without_claim(observed: &Observed) -> Plan {
    if observed
        .annotation(annotations::CDI_PRE_POPULATED)
        .is_some()
    {
        return Plan::waits(None, "something else creates and populates the claim");
    }
    if let Err(unmet) = &observed.request {
        return without_request(unmet);
    }
    let create = || Plan::waits(None, "the claim is being created").step(Step::CreateClaim);
    match &observed.origin {
        Origin::Missing(name) => missing(name),
        Origin::Unpopulated(name) => unpopulated(name),
        Origin::NoSnapshot(name) => {
            let message = format!("volumesnapshot {name}, which is copied, does not exist");
            Plan::waits(Some(Reason::SourceSnapshotNotAvailable), message)
        }
        Origin::IncompleteSnapshot { name, problem } => {
            let mut message = format!("volumesnapshot {name}, which is copied, is not ready");
            if let Some(problem) = problem {
                message = format!("{message}: {problem}");
            }
            Plan::waits(Some(Reason::SourceSnapshotNotAvailable), message)
        }
        Origin::Snapshot { least } => too_small(observed, *least).unwrap_or_else(create),
        // A storage driver copies at the creation, a pod later.
        Origin::InUse { claim, pod } => in_use(claim, pod),
        Origin::None | Origin::Ready(_) | Origin::Cloned(_) => create(),
    }
}

/// A storage driver makes no claim that is smaller than its snapshot.
fn too_small(observed: &Observed, least: Option<u64>) -> Option<Plan> {
    let request = observed.request.as_ref().ok()?;
    let (wanted, least) = (claim::requested(request)?, least?);
    (wanted < least).then(|| {
        let message = format!(
            "a claim from the volume snapshot has at least {}, and the requested size makes one of \
             {}",
            Amount::of(least).to_binary().0,
            Amount::of(wanted).to_binary().0,
        );
        Plan::failed(Reason::DiskDoesNotFit, message)
    })
}

fn without_request(unmet: &Unmet) -> Plan {
    match unmet {
        Unmet::Refused(refusal) => Plan::failed(Reason::ImportNotSupported, &refusal.0),
        Unmet::Waits {
            reason,
            message,
            again,
        } => {
            let mut plan = Plan::waits(Some(*reason), message);
            plan.requeue_in = *again;
            plan
        }
    }
}

fn missing(name: &str) -> Plan {
    let message = format!("persistentvolumeclaim {name}, which is copied, does not exist");
    Plan::waits(Some(Reason::SourcePVCNotAvailable), message)
}

fn unpopulated(name: &str) -> Plan {
    let message = format!("persistentvolumeclaim {name}, which is copied, has no data yet");
    Plan::waits(Some(Reason::SourcePVCNotAvailable), message)
}

fn in_use(claim: &str, pod: &str) -> Plan {
    let message = format!("persistentvolumeclaim {claim}, which is copied, is in use by pod {pod}");
    let mut plan = Plan::waits(Some(Reason::CloneSourceInUse), message);
    plan.requeue_in = Some(SOURCE_PAUSE);
    plan
}

fn with_claim(observed: &Observed, claim: &Claim) -> Plan {
    let uid = observed.volume.metadata.uid.as_deref().unwrap_or_default();
    let name = observed.volume.name_any();
    let is_populated = is_marked(claim, &name);
    if claim.metadata.deletion_timestamp.is_some() {
        let message = format!("persistentvolumeclaim {name} is being deleted");
        return Plan::waits(None, message);
    }
    if !is_of(claim, uid) {
        if is_of_predecessor(claim, &name) {
            let message = format!(
                "persistentvolumeclaim {name} belongs to a deleted data volume of this name, and is \
                 deleted with it"
            );
            return Plan::waits(None, message);
        }
        let is_given = is_populated
            || observed
                .annotation(annotations::CDI_PRE_POPULATED)
                .is_some();
        let may_adopt = observed.annotation(annotations::CDI_ALLOW_CLAIM_ADOPTION) == Some("true");
        return match (is_given, has_controller(claim)) {
            (true, true) => Plan::succeeded(),
            (_, false) if is_given || may_adopt => Plan::succeeded().step(Step::AdoptClaim),
            _ => {
                let message = format!(
                    "persistentvolumeclaim {name} exists, and this data volume did not create it"
                );
                Plan::waits(Some(Reason::ClaimNotUsable), message)
            }
        };
    }
    if is_populated {
        return Plan::succeeded();
    }
    if claim.is_lost {
        let message = format!("persistentvolumeclaim {name} has lost its volume");
        return Plan::failed(Reason::ClaimLost, message);
    }
    match (observed.pod.as_deref(), &observed.request) {
        (Some(pod), _) if fills_other(pod, claim) => {
            let plan = Plan::waits(
                None,
                "the importer's pod of an earlier claim is being deleted",
            );
            if is_deleting(pod) {
                plan
            } else {
                plan.step(Step::DeletePod)
            }
        }
        // Its request was accepted: a node that joins later does not end it.
        (Some(pod), _) => followed(observed, pod),
        (None, Err(unmet)) => without_request(unmet),
        (None, Ok(request)) if request.source == Source::Upload => uploaded(observed, claim),
        (None, Ok(_)) => without_pod(observed, claim),
    }
}

/// The controller of uploads receives the disk, and reports on the claim.
fn uploaded(observed: &Observed, claim: &Claim) -> Plan {
    if claim.annotation(annotations::CDI_POD_PHASE) == Some(upload::SUCCEEDED) {
        return Plan::succeeded().step(Step::MarkClaim);
    }
    if let Some(plan) = unbound(observed, claim) {
        return plan;
    }
    let message = claim.annotation(annotations::CDI_RUNNING_MESSAGE);
    let is_ready = claim.annotation(annotations::CDI_POD_READY) == Some("true");
    let reason = claim.annotation(annotations::CDI_RUNNING_REASON);
    let verdict = Verdict {
        holds: is_ready,
        reason: reason.and_then(|reason| reason.parse().ok()),
        message: message.unwrap_or("the pod is being created").to_owned(),
    };
    let phase = if is_ready {
        Phase::UploadReady
    } else {
        Phase::UploadScheduled
    };
    Plan::state(phase, verdict)
}

/// What to do while the claim has no volume; `None` if it has one, or gets it with the pod.
fn unbound(observed: &Observed, claim: &Claim) -> Option<Plan> {
    if claim.is_bound {
        return None;
    }
    let name = observed.volume.name_any();
    if !observed.waits_for_consumer {
        let message = format!("persistentvolumeclaim {name} is not bound to a volume yet");
        return Some(Plan::waits(None, message));
    }
    if binds_at_once(observed) {
        return None;
    }
    let message = "the import begins when a VM or a pod uses the claim";
    let verdict = Verdict::no(Some(Reason::WaitForFirstConsumer), message);
    Some(Plan::state(Phase::WaitForFirstConsumer, verdict))
}

fn without_pod(observed: &Observed, claim: &Claim) -> Plan {
    if let Some(plan) = unbound(observed, claim) {
        return plan;
    }
    match &observed.origin {
        Origin::Missing(name) => return missing(name),
        Origin::Unpopulated(name) => return unpopulated(name),
        Origin::InUse { claim, pod } => return in_use(claim, pod),
        Origin::None
        | Origin::Ready(_)
        | Origin::Cloned(_)
        | Origin::NoSnapshot(_)
        | Origin::IncompleteSnapshot { .. }
        | Origin::Snapshot { .. } => {}
    }
    let (scheduled, _) = phases(observed);
    if let Some((verdict, step)) = unexported(&observed.transfer) {
        let mut plan = Plan::state(scheduled, verdict);
        plan.steps.extend(step);
        plan.requeue_in = Some(TRANSFER_PAUSE);
        return plan;
    }
    let verdict = Verdict::no(None, "the importer's pod is being created");
    Plan::state(scheduled, verdict).step(Step::CreatePod)
}

/// What is said and done about a source that is not exported yet.
fn unexported(transfer: &Transfer) -> Option<(Verdict, Option<Step>)> {
    let verdict = |message: &str| Verdict::no(None, message);
    Some(match transfer {
        Transfer::None | Transfer::Ready(_) => return None,
        Transfer::Absent => (
            verdict("the source is being exported"),
            Some(Step::OpenSource),
        ),
        Transfer::Incomplete { .. } => (
            verdict("the export of the source is made again"),
            Some(Step::CloseSource),
        ),
        Transfer::Waits { reason, message } => (Verdict::no(*reason, message), None),
    })
}

/// A pod that reads from an export needs it until it has ended, and a new one once the server is another.
fn followed(observed: &Observed, pod: &ImporterPod) -> Plan {
    let mut plan = with_pod(observed, pod);
    let is_over = pod.phase == PodPhase::Succeeded || is_deleting(pod);
    let is_final = |outcome: &Outcome| outcome.phase == Phase::Failed;
    if is_over || observed.transfer == Transfer::None || plan.outcome.as_ref().is_some_and(is_final)
    {
        return plan;
    }
    if let Transfer::Ready(link) = &observed.transfer {
        let notes = pod.metadata.annotations.as_ref();
        let read = notes.and_then(|notes| notes.get(annotations::COPY_LINK));
        if read != Some(&link.id()) && !plan.steps.contains(&Step::DeletePod) {
            plan.steps.push(Step::DeletePod);
        }
    } else if let Some((_, step)) = unexported(&observed.transfer) {
        plan.steps.extend(step);
    }
    let pause = plan.requeue_in.unwrap_or(SOURCE_PAUSE);
    plan.requeue_in = Some(pause.min(SOURCE_PAUSE));
    plan
}

fn with_pod(observed: &Observed, pod: &ImporterPod) -> Plan {
    let restarts = restarts(pod);
    let mut plan = running(observed, pod);
    if let Some(outcome) = &mut plan.outcome {
        outcome.restarts = Some(restarts);
    }
    plan
}

fn running(observed: &Observed, pod: &ImporterPod) -> Plan {
    let (scheduled, in_progress) = phases(observed);
    match pod.phase {
        PodPhase::Succeeded => return Plan::succeeded().step(Step::MarkClaim),
        PodPhase::Failed => return failed_pod(observed, pod),
        PodPhase::Pending | PodPhase::Running => {}
    }
    match &pod.container {
        Container::Running { since } => {
            let verdict = Verdict {
                holds: true,
                reason: None,
                message: "the importer's pod is running".to_owned(),
            };
            let mut plan = Plan::state(in_progress, verdict);
            if let Some(outcome) = &mut plan.outcome {
                outcome.progress.clone_from(&observed.progress);
            }
            plan.requeue_in = Some(pause(*since, observed.now));
            plan
        }
        Container::Ended | Container::Waiting { .. } | Container::Unknown
            if pod.last_end.as_ref().is_some_and(|end| end.exit_code != 0) =>
        {
            let end = pod.last_end.clone().unwrap_or_default();
            match problem(&end) {
                (reason, message, Permanence::Final) => Plan::failed(reason, message),
                (reason, message, Permanence::Retried) => {
                    Plan::state(in_progress, Verdict::no(Some(reason), message))
                }
            }
        }
        Container::Waiting { reason, message } => Plan::state(scheduled, waiting(reason, message)),
        Container::Ended | Container::Unknown => {
            let message = pod.unschedulable.clone();
            let reason = message.as_ref().map(|_| Reason::Unschedulable);
            let message = message.unwrap_or_else(|| "the importer's pod is starting".to_owned());
            Plan::state(scheduled, Verdict::no(reason, message))
        }
    }
}

/// A pod that has ended without its container's consent: an eviction, or a node that is gone.
fn failed_pod(observed: &Observed, pod: &ImporterPod) -> Plan {
    let (_, in_progress) = phases(observed);
    let reported = pod.last_end.as_ref().filter(|end| end.exit_code != 0);
    let (reason, message) = match reported.map(problem) {
        Some((reason, message, Permanence::Final)) => return Plan::failed(reason, message),
        Some((reason, message, Permanence::Retried)) => (reason, message),
        None => {
            let why = pod.message.as_deref().unwrap_or("its node gave no reason");
            (
                Reason::ImportFailed,
                format!("the importer's pod failed: {why}"),
            )
        }
    };
    let mut plan = Plan::state(in_progress, Verdict::no(Some(reason), message));
    if is_deleting(pod) {
        return plan;
    }
    let created = pod.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let ended = pod.last_end.as_ref().and_then(|end| end.at).or(created);
    let due = ended.unwrap_or(observed.now) + delay(restarts(pod));
    if due <= observed.now {
        plan.steps.push(Step::DeletePod);
    } else {
        let left = observed.now.duration_until(due);
        plan.requeue_in = Some(left.unsigned_abs());
    }
    plan
}

/// Phases before the container runs and while it does.
fn phases(observed: &Observed) -> (Phase, Phase) {
    match observed.request.as_ref().map(|request| &request.source) {
        Ok(Source::Claim(_) | Source::Elsewhere(Target::Claim(_))) => {
            (Phase::CloneScheduled, Phase::CloneInProgress)
        }
        Ok(Source::Snapshot(_) | Source::Elsewhere(Target::Snapshot(_))) => (
            Phase::CloneScheduled,
            Phase::CloneFromSnapshotSourceInProgress,
        ),
        _ => (Phase::ImportScheduled, Phase::ImportInProgress),
    }
}

/// Until the progress of a pod that runs since then is read again.
pub(crate) fn pause(since: Option<Timestamp>, now: Timestamp) -> Duration {
    let running = since.map_or(0, |since| now.duration_since(since).as_secs());
    let seconds = (running / 20).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    Duration::from_secs(seconds.unsigned_abs())
}

/// Whether the claim is marked as populated for the data volume of this name.
pub(super) fn is_marked(claim: &Claim, name: &str) -> bool {
    let all = claim.metadata.annotations.as_ref();
    all.and_then(|all| all.get(annotations::CDI_POPULATED_FOR))
        .is_some_and(|marked| marked == name)
}

/// Whether a data volume of the same name controls the claim, which is not the observed one: two of them
/// cannot exist at once.
fn is_of_predecessor(claim: &Claim, name: &str) -> bool {
    let mut owners = claim.owner_references().iter();
    owners.any(|owner| {
        owner.controller == Some(true) && owner.kind == Whole::KIND && owner.name == name
    })
}

/// Whether the pod was created for another claim. A pod of an older version does not name its claim.
fn fills_other(pod: &ImporterPod, claim: &Claim) -> bool {
    let all = pod.metadata.annotations.as_ref();
    let filled = all.and_then(|all| all.get(annotations::IMPORT_CLAIM));
    filled.is_some_and(|filled| Some(filled) != claim.metadata.uid.as_ref())
}

fn has_controller(claim: &Claim) -> bool {
    let mut owners = claim.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true))
}
