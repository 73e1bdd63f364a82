//! Pure planning: maps the observed state to the steps of one reconcile.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::vm_status::{
    StateChangeRequestAction as Action, VirtualMachineStartFailure,
    VirtualMachineStateChangeRequest as Request,
};
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use kubevirt_api::{annotations, finalizers};
use reasons::Reason;

use super::data_volumes::{self, Readiness};
use super::hotplug;
use super::instancetype::ChoiceStep;
use super::links;
use super::live::{self, Follow};
use super::memory_dump::{self, Dump};
use super::nics;
use super::observe::{Observed, Ownership, generation};
use super::revision::{self, Plugs};
use super::strategy::{Decision, Guest, History, Requested, Strategy, decide};
use super::suspend::{self, Hold, Suspend};
use super::view::Vm;
use super::volume_moves::{self, Moves};
use crate::view;

/// The finalizer of an owner whose children are to be orphaned.
const ORPHAN: &str = "orphan";
/// Requeue time while the cluster has no importer of data volumes.
const IMPORTER_WAIT: Duration = Duration::from_secs(30);
/// Requeue time while the specs of the running guest cannot be read.
const UNREAD_WAIT: Duration = Duration::from_secs(30);
/// Until missing network definitions are looked up again: they are not watched, as the kind may not exist.
const DEFINITION_WAIT: Duration = Duration::from_secs(5);
const BACKOFF_STEP: i64 = 10;
const BACKOFF_CAP: i64 = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// On the VM, before its first VMI is made.
    AddFinalizer,
    /// Stores revisions of instance type and preference.
    KeepChoice,
    /// Expands instance type and preference into the VM itself, which triggers another reconcile.
    ExpandChoice,
    /// Stores revisions of instance type and preference in today's format.
    UpgradeChoice,
    /// Deletes the revisions that were replaced. Done after the status is written.
    DropOutdated,
    Adopt,
    /// From the template with that index.
    CreateDataVolume(usize),
    AdoptDataVolume(usize),
    /// Together with the revision of the spec that it is created from.
    CreateVmi,
    DeleteVmi,
    SwitchToAlways,
    /// Changes the strategy of a VM whose guest has left for another VM.
    Halt,
    /// Changes the strategy of a VM that has got its guest from another VM.
    RestoreStrategy,
    /// Applies the requests in the status to the template, which triggers another reconcile.
    ApplyVolumeRequests,
    /// Changes template, claim and status for a dump of the guest's memory, which triggers another reconcile.
    FollowDump,
    /// Changes claims, VMI and status of a VM that is suspended or resumed.
    FollowSuspend,
    /// On the VMI: adds and removes volumes as in the template.
    PlugVolumes,
    /// On the VMI: links of interfaces as in the template.
    SetLinks,
    /// On the VM: interfaces that guest and pod have lost leave the template, which triggers another reconcile.
    DropInterfaces,
    /// On the VMI: processors, memory and nodes as in the template.
    FollowTemplate,
    /// On the VMI: which volumes are to move to other claims.
    FollowVolumes,
    /// On the VMI: it corresponds to this generation of the VM.
    NoteGeneration(i64),
    /// On the VMI: its final state was observed. Done after the status is written.
    ReleaseVmi,
    /// On the VM: it has no VMI any more.
    RemoveFinalizer,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The remaining requests.
    pub(super) requests: Vec<Request>,
    pub(super) start_failure: Option<VirtualMachineStartFailure>,
    pub(super) strategy: Strategy,
    pub(super) restart: Restart,
    /// Changes that the running guest follows.
    pub(super) follow: Follow,
    /// Volumes of the running guest that move to other claims.
    pub(super) moves: Moves,
    /// Why a start is impossible, for the condition.
    pub(super) blocked: Option<Failure>,
    /// What a start waits for, if it needs no user.
    pub(super) waits_for: Option<String>,
    pub(super) requeue_in: Option<Duration>,
    pub(super) dump: Dump,
    pub(super) suspend: Suspend,
}

/// Whether the guest has to be restarted to match the spec of the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Restart {
    /// The guest matches, or there is none.
    NotRequired,
    /// These fields have changed.
    Required(Vec<String>),
    /// The spec of the start is unknown; the condition stays as it is.
    Unknown,
    /// The revisions of instance type and preference are stored first. If that fails, these fields have changed.
    UnlessStored(Vec<String>),
}

/// Why a VM does not start, for its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let strategy = Strategy::of(&observed.vm.spec);
    let status = observed.vm.status();
    let requests = requests_left(&status.state_change_requests, strategy, observed);
    let moves = volume_moves::plan(observed);
    let (restart, follow) = restart(observed, &moves);
    let mut plan = Plan {
        steps: Vec::new(),
        start_failure: start_failure(observed, strategy),
        requests,
        strategy,
        restart,
        follow,
        moves,
        blocked: None,
        waits_for: None,
        requeue_in: None,
        dump: Dump::default(),
        suspend: Suspend::default(),
    };
    if observed.vm.metadata.deletion_timestamp.is_some() {
        plan_deletion(observed, &mut plan);
    } else {
        plan_life(observed, &mut plan);
    }
    if observed
        .vmi
        .as_deref()
        .is_some_and(|vmi| may_release(observed, vmi))
        && !plan.steps.contains(&Step::ReleaseVmi)
    {
        plan.steps.push(Step::ReleaseVmi);
    }
    plan
}

/// Whether the guest has to be restarted; if not, what it follows as it runs.
fn restart(observed: &Observed, moves: &Moves) -> (Restart, Follow) {
    let nothing = Follow::default();
    let Some(vmi) = observed.own_vmi().filter(|vmi| !vmi.is_deleting()) else {
        return (Restart::NotRequired, nothing);
    };
    if generation(vmi) == observed.vm.metadata.generation {
        let failed = live::failed(&vmi.status.conditions);
        return (Restart::of(failed), nothing);
    }
    let Some(before) = &observed.started_from else {
        return (Restart::Unknown, nothing);
    };
    let plugs = if observed.has_hotplug {
        Plugs::Volumes
    } else {
        Plugs::Nothing
    };
    if observed.unread.is_some() {
        return (Restart::Unknown, nothing);
    }
    // A guest that does not run yet follows nothing: a user who corrects it is to see that it needs a restart.
    let running = observed.live.as_ref();
    let Some(guest) = running.filter(|_| *vmi.phase() == Phase::Running) else {
        let changes = revision::changes(&observed.vm, before, plugs, moves);
        let restart = match observed.choice {
            ChoiceStep::Nothing => Restart::of(changes),
            _ => Restart::UnlessStored(changes),
        };
        return (restart, nothing);
    };
    let mut changes = revision::changes_beyond(&observed.vm, guest, plugs, moves);
    let follow = live::follow(guest);
    changes.extend(follow.refused.iter().cloned());
    // The generation is not noted if labels of the template have changed too.
    if follow == nothing {
        changes.extend(live::failed(&vmi.status.conditions));
    }
    // Otherwise the restart would apply a part, and the guest would move for the rest.
    let follow = if changes.is_empty() {
        follow
    } else {
        live::take_back(guest)
    };
    // A saved state belongs to the guest as it was.
    let is_saved_now = suspend::State::of(&observed.vm) == Some(suspend::State::Suspending);
    let follow = if is_saved_now {
        let is_change = follow.waits.is_some() || follow.patch.is_some();
        Follow {
            waits: is_change.then(|| "the state of the guest is being saved".to_owned()),
            ..nothing
        }
    } else {
        follow
    };
    (Restart::of(changes), follow)
}

impl Restart {
    pub(super) fn of(changes: Vec<String>) -> Self {
        if changes.is_empty() {
            Self::NotRequired
        } else {
            Self::Required(changes)
        }
    }
}

fn is_metadata_changed(observed: &Observed) -> bool {
    let before = observed.started_from.as_ref();
    before.is_some_and(|before| revision::is_metadata_changed(&observed.vm, before))
}

fn plan_life(observed: &Observed, plan: &mut Plan) {
    if !has_finalizer(
        observed.vm.metadata.finalizers.as_deref(),
        finalizers::VM_CONTROLLER,
    ) {
        plan.steps.push(Step::AddFinalizer);
    }
    match observed.ownership() {
        // Wait until it is gone.
        Some(Ownership::None)
            if observed
                .vmi
                .as_deref()
                .is_some_and(view::Guest::is_deleting) =>
        {
            return;
        }
        Some(Ownership::None) => return plan.steps.push(Step::Adopt),
        Some(Ownership::Foreign) => {
            let problem = "a VMI of this name belongs to another object";
            plan.blocked = Some(Failure {
                reason: Reason::FailedCreate,
                message: problem.to_owned(),
            });
            return;
        }
        Some(Ownership::Own) | None => {}
    }
    if must_halt(observed, plan.strategy) {
        // Before anything else: its guest runs elsewhere, and must not be started from the disks that it has left.
        return plan.steps.push(Step::Halt);
    }
    if plan.strategy == Strategy::WaitAsReceiver
        && observed
            .own_vmi()
            .is_some_and(|vmi| model::has_come(&vmi.identity()))
        && restored_strategy(&observed.vm).is_some()
    {
        return plan.steps.push(Step::RestoreStrategy);
    }
    note_generation(observed, plan);
    plan.dump = memory_dump::plan(observed);
    if plan.dump != Dump::default() {
        plan.steps.push(Step::FollowDump);
    }
    plan.suspend = suspend::plan(observed);
    if plan.suspend.change.is_some() || plan.suspend.next != suspend::Next::Stays {
        plan.steps.push(Step::FollowSuspend);
    }
    let unread = observed.unread.as_ref().map(|_| UNREAD_WAIT);
    let live = observed.live.as_ref();
    let undefined = live.filter(|live| !live.missing.is_empty());
    let undefined = undefined.map(|_| DEFINITION_WAIT);
    plan.requeue_in = plan.suspend.requeue_in.or(unread).or(undefined);
    plan_devices(observed, plan);
    match observed.choice {
        ChoiceStep::Nothing => {}
        ChoiceStep::Keep => plan.steps.push(Step::KeepChoice),
        ChoiceStep::Expand => return plan.steps.push(Step::ExpandChoice),
        ChoiceStep::Upgrade => plan.steps.extend([Step::UpgradeChoice, Step::DropOutdated]),
    }
    let was = observed.vm.status().run_strategy.clone();
    let is_known = was.is_some() && was == plan.strategy.status_value();
    let history = if is_known {
        History::Known
    } else {
        History::New
    };
    let next = match plan.suspend.hold {
        Hold::No => decide(
            plan.strategy,
            guest(observed),
            requested(&plan.requests),
            history,
        ),
        Hold::Keep => Decision::Stay,
        Hold::Stop => Decision::Stop,
        Hold::Resume => Decision::Start,
    };
    // A restore may be about to create a claim of the same name.
    if observed.vm.status().restore_in_progress.is_none() {
        plan.steps.extend(data_volumes::steps(observed, next));
    }
    match next {
        Decision::Stay => {}
        Decision::Stop => {
            let is_note = |step: &Step| matches!(step, Step::NoteGeneration(_));
            plan.steps.retain(|step| !is_note(step));
            plan.follow = Follow::default();
            plan.moves.patch = None;
            plan.steps.push(Step::DeleteVmi);
        }
        Decision::SwitchToAlways => plan.steps.push(Step::SwitchToAlways),
        Decision::RequestStart => plan.requests.push(Request {
            action: Action::Start,
            ..Request::default()
        }),
        Decision::Start => plan_start(observed, plan),
    }
    // Last: a change that is refused holds up nothing else. One after the other, as each is made of what was observed.
    if plan.moves.patch.is_some() {
        plan.steps.push(Step::FollowVolumes);
    } else if plan.follow.patch.is_some() {
        plan.steps.push(Step::FollowTemplate);
    }
}

/// Volumes and interfaces that the running guest gets and loses.
fn plan_devices(observed: &Observed, plan: &mut Plan) {
    if !observed.vm.status().volume_requests.is_empty() {
        plan.steps.push(Step::ApplyVolumeRequests);
    } else if let Some(vmi) = observed.own_vmi().filter(|_| observed.has_hotplug)
        && hotplug::is_behind(&suspend::live_template(observed, vmi), vmi)
    {
        plan.steps.push(Step::PlugVolumes);
    }
    if let Some(vmi) = observed.own_vmi()
        && links::is_behind(&observed.vm.spec.template, vmi)
    {
        plan.steps.push(Step::SetLinks);
    }
    if let Some(vmi) = observed.own_vmi()
        && nics::has_left_over(&observed.vm.spec.template, vmi)
    {
        plan.steps.push(Step::DropInterfaces);
    }
}

fn note_generation(observed: &Observed, plan: &mut Plan) {
    if plan.restart == Restart::NotRequired
        && plan.follow == Follow::default()
        && !plan.moves.is_open
        && let (Some(vmi), Some(now)) = (observed.own_vmi(), observed.vm.metadata.generation)
        && !vmi.is_deleting()
        && generation(vmi) != Some(now)
        && !is_metadata_changed(observed)
    {
        plan.steps.push(Step::NoteGeneration(now));
    }
}

fn plan_start(observed: &Observed, plan: &mut Plan) {
    if let Some(message) = &plan.moves.recovery {
        plan.blocked = Some(Failure {
            reason: Reason::ManualRecoveryRequired,
            message: message.clone(),
        });
        return;
    }
    if let Some(lock) = lock(observed) {
        plan.waits_for = Some(lock);
        return;
    }
    match data_volumes::readiness(observed) {
        Readiness::Ready => {}
        Readiness::Waits(message) => {
            plan.waits_for = Some(message);
            return;
        }
        Readiness::Impossible(message) => {
            plan.blocked = Some(Failure {
                reason: Reason::FeatureNotSupported,
                message,
            });
            // No watch reports the installation of an importer.
            plan.requeue_in = Some(IMPORTER_WAIT);
            return;
        }
    }
    let wait = plan.start_failure.as_ref().and_then(|failure| {
        let until = failure.retry_after_timestamp.as_ref()?.0;
        Duration::try_from(until.duration_since(observed.now))
            .ok()
            .filter(|wait| !wait.is_zero())
    });
    match wait.filter(|_| plan.strategy.backs_off()) {
        Some(wait) => plan.requeue_in = Some(wait),
        None => plan.steps.push(Step::CreateVmi),
    }
}

/// The operation that copies or replaces the disks of the stopped VM.
fn lock(observed: &Observed) -> Option<String> {
    let status = observed.vm.status();
    let (what, name) = match (&status.restore_in_progress, &status.snapshot_in_progress) {
        (Some(name), _) => ("restore", name),
        (None, Some(name)) => ("snapshot", name),
        (None, None) => return None,
    };
    Some(format!(
        "{what} {name} is in progress: the VM starts when it ends"
    ))
}

fn plan_deletion(observed: &Observed, plan: &mut Plan) {
    let finalizers = observed.vm.metadata.finalizers.as_deref();
    let has_ours = has_finalizer(finalizers, finalizers::VM_CONTROLLER);
    match observed.own_vmi() {
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

/// Whether this controller may remove its finalizer from a terminating VMI: its end is observed, or
/// it does not belong to this VM, and then no other controller removes the finalizer.
fn may_release(observed: &Observed, vmi: &view::Guest) -> bool {
    let finalizers = vmi.metadata.finalizers.as_deref();
    let is_held_for_pods = has_finalizer(finalizers, finalizers::VMI);
    let is_foreign = observed.ownership() != Some(Ownership::Own);
    let named = vmi.identity();
    let is_undecided = model::may_have_departed(&named);
    let status = observed.vm.status();
    let mut requests = status.state_change_requests.iter();
    // With the VMI goes the knowledge that its guest runs elsewhere.
    let would_start = Strategy::of(&observed.vm.spec).starts_again()
        || requests.any(|request| request.action == Action::Start);
    let is_needed = is_undecided || model::has_departed(&named) && would_start;
    let may_go = observed.vm.metadata.deletion_timestamp.is_some() || is_foreign || !is_needed;
    vmi.is_deleting()
        && may_go
        && has_finalizer(finalizers, finalizers::VM_CONTROLLER)
        && (vmi.is_final() || !is_held_for_pods || is_foreign)
}

/// Whether the guest has left for another VM, and this one would start another.
fn must_halt(observed: &Observed, strategy: Strategy) -> bool {
    let vmi = observed.own_vmi();
    let has_departed = vmi.is_some_and(|vmi| model::has_departed(&vmi.identity()));
    has_departed && strategy.starts_again()
}

/// The strategy of a VM that has got its guest, as its owner wishes it.
pub(super) fn restored_strategy(vm: &Vm) -> Option<&str> {
    let wished = vm.annotation(annotations::RESTORE_RUN_STRATEGY);
    let known = ["Always", "RerunOnFailure", "Manual", "Once", "Halted"];
    wished.filter(|wished| known.contains(wished))
}

fn guest(observed: &Observed) -> Guest {
    let Some(vmi) = observed.own_vmi() else {
        return Guest::Absent;
    };
    // Whether its guest goes on elsewhere is not known yet.
    let is_undecided = vmi.is_final() && model::may_have_departed(&vmi.identity());
    if vmi.is_deleting() || is_undecided {
        return Guest::Ending;
    }
    match vmi.phase() {
        Phase::Succeeded => Guest::Succeeded,
        Phase::Failed => Guest::Failed,
        _ => Guest::Live,
    }
}

pub(super) fn requested(requests: &[Request]) -> Requested {
    match requests.first().map(|request| &request.action) {
        Some(Action::Stop) => Requested::Stop,
        Some(Action::Start) => Requested::Start,
        Some(Action::Other(_)) | None => Requested::Nothing,
    }
}

/// Drops from the front the requests that are done or no longer apply; a request that stayed without
/// effect would take effect under another strategy much later.
fn requests_left(requests: &[Request], strategy: Strategy, observed: &Observed) -> Vec<Request> {
    let vmi = observed.own_vmi();
    let uid = vmi.and_then(|vmi| vmi.metadata.uid.as_deref());
    let guest = guest(observed);
    let has_departed = vmi.is_some_and(|vmi| model::has_departed(&vmi.identity()));
    let is_done = |request: &Request| match request.action {
        Action::Stop => uid.is_none() || request.uid.as_deref() != uid || strategy.ignores_stops(),
        Action::Start => match guest {
            Guest::Absent => false,
            Guest::Live | Guest::Succeeded => true,
            // This request starts a crashed guest again.
            Guest::Failed => strategy != Strategy::RerunOnFailure,
            Guest::Ending => strategy == Strategy::Halted,
        },
        Action::Other(_) => true,
    };
    // Its guest runs elsewhere: a start that was asked for before would be from the disks that it has left.
    let is_void = |request: &Request| has_departed && request.action == Action::Start;
    requests
        .iter()
        .filter(|request| !is_void(request))
        .skip_while(|request| is_done(request))
        .cloned()
        .collect()
}

/// Consecutive failed starts: one more if this VMI ended without ever running.
fn start_failure(observed: &Observed, strategy: Strategy) -> Option<VirtualMachineStartFailure> {
    // A failed resume is not tried again without the user, and has a reason of its own.
    let has_saved_state = suspend::State::of(&observed.vm).is_some_and(suspend::State::is_saved);
    if !strategy.counts_failures() || has_saved_state {
        return None;
    }
    let before = observed.vm.status().start_failure.clone();
    let Some(vmi) = observed.own_vmi() else {
        return before;
    };
    // A guest that succeeded has run. Under a strategy that does not start it again, nothing else
    // would ever clear the earlier failures.
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
    let until = observed
        .now
        .checked_add(SignedDuration::from_secs(wait))
        .unwrap_or(Timestamp::MAX);
    Some(VirtualMachineStartFailure {
        consecutive_fail_count: Some(count),
        last_failed_vmi_uid: uid,
        retry_after_timestamp: Some(Time(until)),
    })
}

/// 10 s times the square of the count, plus jitter of up to half of that, at most 300 s, as `KubeVirt`
/// does. The jitter follows from the UID of the failed VMI, so that every reconcile gets the same.
pub(super) fn backoff_seconds(count: i64, uid: &str) -> i64 {
    let base = count
        .saturating_mul(count)
        .saturating_mul(BACKOFF_STEP)
        .min(BACKOFF_CAP);
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let jitter = i64::try_from(hasher.finish() % 1000).unwrap_or(0);
    (base + base / 2 * jitter / 1000).min(BACKOFF_CAP)
}

pub(super) fn has_finalizer(finalizers: Option<&[String]>, name: &str) -> bool {
    finalizers
        .unwrap_or_default()
        .iter()
        .any(|finalizer| finalizer == name)
}
