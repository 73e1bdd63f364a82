//! What a pass does, decided from what it saw.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::finalizers;
use kubevirt_api::vm_status::{
    StateChangeRequestAction as Action, VirtualMachineStartFailure,
    VirtualMachineStateChangeRequest as Request,
};
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use reasons::Reason;

use super::data_volumes::{self, Readiness};
use super::instancetype::Due;
use super::observe::{Belongs, Observed, generation};
use super::revision;
use super::strategy::{Asked, Guest, History, Move, Strategy, decide};
use crate::view;

/// The garbage collector leaves children alone when this is on the owner.
const ORPHAN: &str = "orphan";
/// Until it is looked whether the cluster has an importer of data volumes by now.
const IMPORTER_WAIT: Duration = Duration::from_secs(30);
const BACKOFF_STEP: i64 = 10;
const BACKOFF_CAP: i64 = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// On the VM, before its first VMI is made.
    AddFinalizer,
    /// Copies of instance type and preference, to hold on to.
    KeepChoice,
    /// Instance type and preference go into the VM itself; it is looked at again then.
    WriteOutChoice,
    Adopt,
    /// Of the template with that index.
    CreateDataVolume(usize),
    AdoptDataVolume(usize),
    /// And the copy of the spec that it is made from.
    CreateVmi,
    DeleteVmi,
    SwitchToAlways,
    /// On the VMI: it is what would be made of this generation of the VM, too.
    NoteGeneration(i64),
    /// On the VMI: its last state was seen. Comes after the status is written.
    ReleaseVmi,
    /// On the VM: nothing is left of it.
    RemoveFinalizer,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// What remains of the requests.
    pub(super) requests: Vec<Request>,
    pub(super) start_failure: Option<VirtualMachineStartFailure>,
    pub(super) strategy: Strategy,
    pub(super) restart: Restart,
    /// Why a start is impossible, for the condition.
    pub(super) blocked: Option<Blocked>,
    /// What a start waits for, that comes by itself.
    pub(super) waits_for: Option<String>,
    pub(super) look_again_in: Option<Duration>,
}

/// Whether the guest runs as the VM is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Restart {
    /// Or there is no guest.
    NotRequired,
    /// These fields have changed since.
    Required(Vec<String>),
    /// Nobody knows what it was started from; what was said before stands.
    Unclear,
}

/// For the condition of a VM that does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) reason: Reason,
    pub(super) message: String,
}

pub(super) fn plan(seen: &Observed) -> Plan {
    let strategy = Strategy::of(&seen.vm.spec);
    let status = seen.vm.status();
    let requests = requests_left(&status.state_change_requests, strategy, seen);
    let mut plan = Plan {
        steps: Vec::new(),
        start_failure: start_failure(seen, strategy),
        requests,
        strategy,
        restart: restart(seen),
        blocked: None,
        waits_for: None,
        look_again_in: None,
    };
    if seen.vm.metadata.deletion_timestamp.is_some() {
        plan_deletion(seen, &mut plan);
    } else {
        plan_life(seen, &mut plan);
    }
    if seen
        .vmi
        .as_deref()
        .is_some_and(|vmi| may_release(seen, vmi))
        && !plan.steps.contains(&Step::ReleaseVmi)
    {
        plan.steps.push(Step::ReleaseVmi);
    }
    plan
}

fn restart(seen: &Observed) -> Restart {
    let Some(vmi) = seen.own_vmi().filter(|vmi| !vmi.is_deleting()) else {
        return Restart::NotRequired;
    };
    if generation(vmi) == seen.vm.metadata.generation {
        return Restart::NotRequired;
    }
    let Some(before) = &seen.started_from else {
        return Restart::Unclear;
    };
    let changes = revision::changes(&seen.vm, before);
    if changes.is_empty() {
        Restart::NotRequired
    } else {
        Restart::Required(changes)
    }
}

fn plan_life(seen: &Observed, plan: &mut Plan) {
    if !has_finalizer(
        seen.vm.metadata.finalizers.as_deref(),
        finalizers::VM_CONTROLLER,
    ) {
        plan.steps.push(Step::AddFinalizer);
    }
    match seen.belongs() {
        // What is on its way out is waited for.
        Some(Belongs::Nobody) if seen.vmi.as_deref().is_some_and(view::Guest::is_deleting) => {
            return;
        }
        Some(Belongs::Nobody) => return plan.steps.push(Step::Adopt),
        Some(Belongs::Other) => {
            let problem = "an instance of this name belongs to another object";
            plan.blocked = Some(Blocked {
                reason: Reason::FailedCreate,
                message: problem.to_owned(),
            });
            return;
        }
        Some(Belongs::Ours) | None => {}
    }
    if plan.restart == Restart::NotRequired
        && let (Some(vmi), Some(now)) = (seen.own_vmi(), seen.vm.metadata.generation)
        && !vmi.is_deleting()
        && generation(vmi) != Some(now)
    {
        plan.steps.push(Step::NoteGeneration(now));
    }
    match seen.choice {
        Due::Nothing => {}
        Due::Keep => plan.steps.push(Step::KeepChoice),
        Due::WriteOut => return plan.steps.push(Step::WriteOutChoice),
    }
    let was = seen.vm.status().run_strategy.clone();
    let is_known = was.is_some() && was == plan.strategy.word();
    let history = if is_known {
        History::Known
    } else {
        History::New
    };
    let next = decide(plan.strategy, guest(seen), asked(&plan.requests), history);
    plan.steps
        .extend(data_volumes::steps(seen, next == Move::Start));
    match next {
        Move::Stay => {}
        Move::Stop => {
            let is_note = |step: &Step| matches!(step, Step::NoteGeneration(_));
            plan.steps.retain(|step| !is_note(step));
            plan.steps.push(Step::DeleteVmi);
        }
        Move::SwitchToAlways => plan.steps.push(Step::SwitchToAlways),
        Move::AskForStart => plan.requests.push(Request {
            action: Action::Start,
            ..Request::default()
        }),
        Move::Start => plan_start(seen, plan),
    }
}

fn plan_start(seen: &Observed, plan: &mut Plan) {
    match data_volumes::readiness(seen) {
        Readiness::Ready => {}
        Readiness::Waits(message) => {
            plan.waits_for = Some(message);
            return;
        }
        Readiness::Impossible(message) => {
            plan.blocked = Some(Blocked {
                reason: Reason::FeatureNotSupported,
                message,
            });
            // Nobody tells when an importer comes.
            plan.look_again_in = Some(IMPORTER_WAIT);
            return;
        }
    }
    let wait = plan.start_failure.as_ref().and_then(|failure| {
        let until = failure.retry_after_timestamp.as_ref()?.0;
        Duration::try_from(until.duration_since(seen.now))
            .ok()
            .filter(|wait| !wait.is_zero())
    });
    match wait.filter(|_| plan.strategy.backs_off()) {
        Some(wait) => plan.look_again_in = Some(wait),
        None => plan.steps.push(Step::CreateVmi),
    }
}

fn plan_deletion(seen: &Observed, plan: &mut Plan) {
    let finalizers = seen.vm.metadata.finalizers.as_deref();
    let has_ours = has_finalizer(finalizers, finalizers::VM_CONTROLLER);
    match seen.own_vmi() {
        Some(_) if has_finalizer(finalizers, ORPHAN) => plan.steps.push(Step::ReleaseVmi),
        Some(vmi) if !vmi.is_deleting() => {
            plan.steps.push(Step::DeleteVmi);
        }
        None if has_ours => plan.steps.push(Step::RemoveFinalizer),
        Some(_) | None => {}
    }
    if has_finalizer(finalizers, ORPHAN) && has_ours {
        plan.steps.push(Step::RemoveFinalizer);
        plan.steps.dedup();
    }
}

/// Whether the VMI holds nothing more to be seen: it is to go and its end is known, or it is not
/// this VM's, whose finalizer then has no one else to take it off.
fn may_release(seen: &Observed, vmi: &view::Guest) -> bool {
    let finalizers = vmi.metadata.finalizers.as_deref();
    let is_held_for_pods = has_finalizer(finalizers, finalizers::VMI);
    let is_strange = seen.belongs() != Some(Belongs::Ours);
    vmi.is_deleting()
        && has_finalizer(finalizers, finalizers::VM_CONTROLLER)
        && (vmi.is_final() || !is_held_for_pods || is_strange)
}

fn guest(seen: &Observed) -> Guest {
    let Some(vmi) = seen.own_vmi() else {
        return Guest::Absent;
    };
    if vmi.is_deleting() {
        return Guest::Ending;
    }
    match vmi.phase() {
        Phase::Succeeded => Guest::Succeeded,
        Phase::Failed => Guest::Failed,
        _ => Guest::Live,
    }
}

pub(super) fn asked(requests: &[Request]) -> Asked {
    match requests.first().map(|request| &request.action) {
        Some(Action::Stop) => Asked::Stop,
        Some(Action::Start) => Asked::Start,
        Some(Action::Other(_)) | None => Asked::Nothing,
    }
}

/// Drops from the front what has been done or cannot apply any more; what stays although nobody
/// acts on it would be acted on under another strategy, long after it was asked for.
fn requests_left(requests: &[Request], strategy: Strategy, seen: &Observed) -> Vec<Request> {
    let vmi = seen.own_vmi();
    let uid = vmi.and_then(|vmi| vmi.metadata.uid.as_deref());
    let guest = guest(seen);
    let is_done = |request: &Request| match request.action {
        Action::Stop => uid.is_none() || request.uid.as_deref() != uid || strategy.ignores_stops(),
        Action::Start => match guest {
            Guest::Absent => false,
            Guest::Live | Guest::Succeeded => true,
            // One that crashed is to be started again by this very request.
            Guest::Failed => strategy != Strategy::RerunOnFailure,
            Guest::Ending => strategy == Strategy::Halted,
        },
        Action::Other(_) => true,
    };
    requests
        .iter()
        .skip_while(|request| is_done(request))
        .cloned()
        .collect()
}

/// Failed starts so far: one more when this VMI ended without ever running.
fn start_failure(seen: &Observed, strategy: Strategy) -> Option<VirtualMachineStartFailure> {
    if !strategy.counts_failures() {
        return None;
    }
    let before = seen.vm.status().start_failure.clone();
    let Some(vmi) = seen.own_vmi() else {
        return before;
    };
    // One that ended well has run, however short. Where it is not started again because of that,
    // nothing would ever take the failures before it back.
    let has_ended_well = *vmi.phase() == Phase::Succeeded;
    if vmi.has_run() || (has_ended_well && strategy == Strategy::RerunOnFailure) {
        return None;
    }
    let uid = vmi.metadata.uid.clone();
    let is_counted = before
        .as_ref()
        .is_some_and(|b| b.last_failed_vmi_uid == uid);
    if !vmi.is_final() || is_counted {
        return before;
    }
    let count = before
        .and_then(|before| before.consecutive_fail_count)
        .unwrap_or(0)
        + 1;
    let wait = backoff_seconds(count, uid.as_deref().unwrap_or_default());
    let until = seen
        .now
        .checked_add(SignedDuration::from_secs(wait))
        .unwrap_or(Timestamp::MAX);
    Some(VirtualMachineStartFailure {
        consecutive_fail_count: Some(count),
        last_failed_vmi_uid: uid,
        retry_after_timestamp: Some(Time(until)),
    })
}

/// 10 s times the square of the count, plus up to half of that, at most 300 s. The share is
/// drawn from the UID of what failed, so that looking twice gives the same time.
pub(super) fn backoff_seconds(count: i64, uid: &str) -> i64 {
    let base = count
        .saturating_mul(count)
        .saturating_mul(BACKOFF_STEP)
        .min(BACKOFF_CAP);
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let share = i64::try_from(hasher.finish() % 1000).unwrap_or(0);
    (base + base / 2 * share / 1000).min(BACKOFF_CAP)
}

pub(super) fn has_finalizer(finalizers: Option<&[String]>, name: &str) -> bool {
    finalizers
        .unwrap_or_default()
        .iter()
        .any(|finalizer| finalizer == name)
}
