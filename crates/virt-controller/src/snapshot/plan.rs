//! Pure planning: maps the observed state to the next step, and to the state that users see.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::conditions;
use kubevirt_api::finalizers;
use kubevirt_api::snapshot::{
    DeletionPolicy, VirtualMachineSnapshot, VirtualMachineSnapshotPhase as Phase,
};
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType as Type, VirtualMachineInstancePhase as GuestPhase,
};
use reasons::Reason;

use super::hold::{By, Hold};
use super::observe::{Content, Observed};
use super::source::DiskState;
use crate::operation;
use crate::view::Guest;

const DEADLINE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    AddFinalizer,
    RemoveFinalizer,
    /// On the VM.
    Lock,
    Unlock,
    CreateContent,
    /// Pauses the guest. Nothing is copied before its VMI shows that it is paused.
    Pause(Hold),
    /// Holds the guest in other ways, and creates the missing volume snapshots.
    Copy(Hold),
    /// Records that all disks are copied.
    NoteCreated,
    Release(Hold),
    DeleteContent,
    /// The content outlives the snapshot.
    KeepContent,
}

/// What users see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    Copying,
    Waits {
        reason: Reason,
        message: String,
    },
    Complete,
    /// It was complete, and its data is gone.
    Lost(String),
    Failed {
        reason: Reason,
        message: String,
    },
    Deleting,
    /// The failure is shown already.
    Ended,
}

pub(super) type Plan = operation::Plan<Step, Progress>;

/// Whether a change of the guest may lead to a step: each reconcile reads all parts of the snapshot.
pub(super) fn depends_on_guest(snapshot: &VirtualMachineSnapshot) -> bool {
    let status = snapshot.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_ref());
    let has_ended = matches!(phase, Some(Phase::Succeeded | Phase::Failed));
    !has_ended
        || snapshot.metadata.deletion_timestamp.is_some()
        || Hold::of(snapshot).is_some_and(|hold| hold.is_ours())
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let has_finalizer = observed
        .snapshot
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|one| one == finalizers::SNAPSHOT);
    if observed.snapshot.metadata.deletion_timestamp.is_some() {
        let mut plan = deletion(observed);
        plan.step = plan.step.filter(|_| has_finalizer);
        return plan;
    }
    match observed.phase() {
        Phase::Failed => clean_up(observed, Progress::Ended),
        Phase::Succeeded => clean_up(observed, lost(observed)),
        _ if !has_finalizer => Plan::step(Step::AddFinalizer, Progress::Copying),
        _ => progress(observed),
    }
}

fn deletion(observed: &Observed) -> Plan {
    let progress = Progress::Deleting;
    if let Some(step) = release(observed) {
        return Plan::step(step, progress);
    }
    let Some(content) = &observed.content else {
        return Plan::step(Step::RemoveFinalizer, progress);
    };
    let (policy, metadata) = (
        &observed.snapshot.spec.deletion_policy,
        &content.object.metadata,
    );
    if *policy == Some(DeletionPolicy::Retain) {
        let names_us = content.object.spec.virtual_machine_snapshot_name.is_some();
        let step = if names_us {
            Step::KeepContent
        } else {
            Step::RemoveFinalizer
        };
        return Plan::step(step, progress);
    }
    if metadata.deletion_timestamp.is_none() {
        return Plan::step(Step::DeleteContent, progress);
    }
    Plan::retried(progress)
}

/// Releases the guest and the VM, if this snapshot holds them.
fn release(observed: &Observed) -> Option<Step> {
    let hold = observed.hold().filter(Hold::is_ours);
    match (hold, observed.locked()) {
        // A frozen guest should not wait.
        (Some(hold), _) if hold.by == By::Agent => Some(Step::Release(hold)),
        // A guest is not unpaused while its VM is locked.
        (_, Some(_)) => Some(Step::Unlock),
        (Some(hold), None) => Some(Step::Release(hold)),
        // A process ended while it locked the VM.
        (None, None) if observed.is_protected_only() => Some(Step::Unlock),
        (None, None) => None,
    }
}

fn clean_up(observed: &Observed, progress: Progress) -> Plan {
    match release(observed) {
        Some(step) => Plan::step(step, progress),
        None => Plan::state(progress),
    }
}

/// The state of a snapshot that was complete.
fn lost(observed: &Observed) -> Progress {
    let Some(content) = &observed.content else {
        return Progress::Lost("its content is gone".to_owned());
    };
    match missing(content) {
        Some(message) => Progress::Lost(message),
        None => Progress::Complete,
    }
}

fn missing(content: &Content) -> Option<String> {
    let gone = content.copies.iter().find(|copy| copy.object.is_none())?;
    Some(format!(
        "volume snapshot {} of volume {} is gone",
        gone.name, gone.volume
    ))
}

fn progress(observed: &Observed) -> Plan {
    if let Some(content) = observed.content.as_ref().filter(|one| one.is_created()) {
        return completion(observed, content);
    }
    let plan = copying(observed);
    let Some(left) = time_left(observed) else {
        return plan;
    };
    if left.is_zero() {
        let cause = match plan.progress {
            Progress::Waits { message, .. } => format!(": {message}"),
            _ => String::new(),
        };
        return failed(
            Reason::SnapshotDeadlineExceeded,
            format!("the snapshot did not complete within its deadline{cause}"),
        );
    }
    let requeue_in = Some(plan.requeue_in.map_or(left, |wait| wait.min(left)));
    Plan { requeue_in, ..plan }
}

/// The time until the deadline, if there is one.
fn time_left(observed: &Observed) -> Option<Duration> {
    let spec = &observed.snapshot.spec;
    let deadline = match &spec.failure_deadline {
        None => DEADLINE,
        // Admission refuses what is not a duration.
        Some(given) => given.parse().unwrap_or(DEADLINE),
    };
    if deadline.is_zero() {
        return None;
    }
    let created = observed.snapshot.metadata.creation_timestamp.as_ref()?.0;
    let end = created.checked_add(deadline).unwrap_or(Timestamp::MAX);
    let left = end.duration_since(observed.now);
    Some(Duration::try_from(left).unwrap_or_default())
}

/// All disks are copied: the guest goes on, and storage may still have to store the copies.
fn completion(observed: &Observed, content: &Content) -> Plan {
    if let Some(step) = release(observed) {
        return Plan::step(step, Progress::Copying);
    }
    if let Some(message) = missing(content) {
        return failed(Reason::VolumeSnapshotMissing, message);
    }
    match content.copies.iter().find(|copy| !copy.is_ready()) {
        None => Plan::state(Progress::Complete),
        Some(copy) => {
            let error = copy.error().map(|error| format!(": {error}"));
            let error = error.unwrap_or_default();
            let message = format!("volume snapshot {} is not ready{error}", copy.name);
            waits(Reason::VolumeSnapshotNotReady, message)
        }
    }
}

fn waits(reason: Reason, message: impl Into<String>) -> Plan {
    Plan::retried(Progress::Waits {
        reason,
        message: message.into(),
    })
}

/// The next reconcile releases the guest and the VM.
fn failed(reason: Reason, message: String) -> Plan {
    Plan::retried(Progress::Failed { reason, message })
}

fn copying(observed: &Observed) -> Plan {
    let Some(vm) = &observed.vm else {
        let name = &observed.snapshot.spec.source.name;
        return waits(
            Reason::SnapshotSourceMissing,
            format!("VirtualMachine {name} does not exist"),
        );
    };
    if observed.locked().is_none() {
        if let Some(problem) = obstacle(observed) {
            // A VM that is being deleted would never go.
            let unlock = observed.is_protected_only().then_some(Step::Unlock);
            return Plan {
                step: unlock,
                ..problem
            };
        }
        return Plan::step(Step::Lock, Progress::Copying);
    }
    // A guest that is on its way would start while its disks are copied.
    if let Some(guest) = &observed.guest
        && let Some(message) = unsettled(guest)
    {
        return waits(Reason::SnapshotSourceBusy, message);
    }
    let Some(content) = &observed.content else {
        return match obstacle_of_disks(observed) {
            Some(problem) => problem,
            None => Plan::step(Step::CreateContent, Progress::Copying),
        };
    };
    if content.copies.is_empty() {
        return Plan::step(Step::NoteCreated, Progress::Copying);
    }
    let hold = observed.hold();
    let is_begun = content.copies.iter().any(|copy| copy.object.is_some());
    let was_held = hold.as_ref().is_some_and(|hold| is_held(observed, hold));
    match hold {
        _ if is_begun && !was_held => failed(
            Reason::SnapshotInconsistent,
            format!(
                "the guest of VirtualMachine {} was started, ended, resumed or thawed while its \
                 disks were copied",
                vm.object["metadata"]["name"].as_str().unwrap_or_default()
            ),
        ),
        Some(hold) if was_held => {
            let all_exist = content.copies.iter().all(|copy| copy.object.is_some());
            if !all_exist {
                return Plan::step(Step::Copy(hold), Progress::Copying);
            }
            match content.copies.iter().find(|copy| !copy.is_created()) {
                None => Plan::step(Step::NoteCreated, Progress::Copying),
                Some(copy) => match copy.error() {
                    Some(error) => waits(
                        Reason::VolumeSnapshotNotReady,
                        format!("volume snapshot {}: {error}", copy.name),
                    ),
                    None => Plan::state(Progress::Copying),
                },
            }
        }
        // Without a deadline it would be held again and again.
        Some(hold)
            if hold.is_ours()
                && is_of_guest(observed, &hold)
                && observed.now.as_second() >= hold.until =>
        {
            failed(
                Reason::SnapshotDeadlineExceeded,
                "the guest was held still as long as it may be, and its disks were not copied"
                    .to_owned(),
            )
        }
        hold => {
            let hold = new_hold(observed, hold.as_ref());
            let step = match hold.by {
                By::Pause if !is_paused(observed) => Step::Pause(hold),
                By::Lock | By::Agent | By::User | By::Pause => Step::Copy(hold),
            };
            Plan::step(step, Progress::Copying)
        }
    }
}

/// Why the VM cannot be locked yet.
fn obstacle(observed: &Observed) -> Option<Plan> {
    let vm = observed.vm.as_ref()?;
    let name = observed.snapshot.spec.source.name.as_str();
    let busy = |message: String| Some(waits(Reason::SnapshotSourceBusy, message));
    if !vm.object["metadata"]["deletionTimestamp"].is_null() {
        return busy(format!("VirtualMachine {name} is being deleted"));
    }
    if let Some(other) = &vm.status.snapshot_in_progress {
        return busy(format!("snapshot {other} of the same VM is in progress"));
    }
    if let Some(restore) = &vm.status.restore_in_progress {
        return busy(format!("restore {restore} of the VM is in progress"));
    }
    // A claim that receives a copy is not complete.
    if vm.status.volume_update_state.is_some() {
        return busy(format!(
            "volumes of VirtualMachine {name} move to other claims"
        ));
    }
    if let Some(other) = &observed.busy {
        return busy(other.clone());
    }
    if let Some(message) = observed.guest.as_ref().and_then(unsettled) {
        return busy(message);
    }
    obstacle_of_disks(observed)
}

fn obstacle_of_disks(observed: &Observed) -> Option<Plan> {
    let mut reasons = Vec::new();
    for disk in &observed.disks {
        let (volume, claim) = (&disk.volume, &disk.claim);
        match &disk.state {
            DiskState::Copyable(_) => {}
            DiskState::NotCopyable(reason) => reasons.push(format!("volume {volume}: {reason}")),
            DiskState::Missing => {
                return Some(waits(
                    Reason::SnapshotSourceMissing,
                    format!("persistentvolumeclaim {claim} of volume {volume} does not exist"),
                ));
            }
            DiskState::Unbound => {
                return Some(waits(
                    Reason::SnapshotSourceBusy,
                    format!(
                        "persistentvolumeclaim {claim} of volume {volume} has no volume yet: start \
                         the VM once"
                    ),
                ));
            }
            DiskState::InUse(pod) => {
                return Some(waits(
                    Reason::SnapshotSourceBusy,
                    format!(
                        "pod {pod} uses persistentvolumeclaim {claim} of volume {volume}: wait until it \
                         ends, or delete it"
                    ),
                ));
            }
            DiskState::Unpopulated(why) => {
                return Some(waits(
                    Reason::SnapshotSourceBusy,
                    format!("persistentvolumeclaim {claim} of volume {volume}: {why}"),
                ));
            }
        }
    }
    let all = observed.disks.len();
    (all > 0 && reasons.len() == all)
        .then(|| waits(Reason::SnapshotsNotSupported, reasons.join("; ")))
}

/// Why the guest cannot be held yet.
fn unsettled(guest: &Guest) -> Option<String> {
    if guest.is_deleting() {
        return Some("the guest is being stopped".to_owned());
    }
    if guest.status.is_migrating {
        return Some("the guest is migrating".to_owned());
    }
    (*guest.phase() != GuestPhase::Running).then(|| "the guest is being started".to_owned())
}

pub(super) fn is_paused(observed: &Observed) -> bool {
    has(observed, &Type::Paused)
}

pub(super) fn has_agent(observed: &Observed) -> bool {
    has(observed, &Type::AgentConnected)
}

fn has(observed: &Observed, kind: &Type) -> bool {
    let guest = observed.guest.as_ref();
    guest.is_some_and(|guest| conditions::is_true(&guest.status.conditions, kind))
}

fn is_of_guest(observed: &Observed, hold: &Hold) -> bool {
    let guest = observed.guest.as_ref();
    let uid = guest.and_then(|guest| guest.metadata.uid.as_deref());
    uid.unwrap_or_default() == hold.uid
}

/// Whether the hold applies to the guest as it is now.
fn is_held(observed: &Observed, hold: &Hold) -> bool {
    let is_in_time = observed.now.as_second() < hold.until;
    is_of_guest(observed, hold)
        && match hold.by {
            By::Lock => true,
            By::Agent => is_in_time,
            By::Pause => is_in_time && is_paused(observed),
            By::User => is_paused(observed),
        }
}

fn new_hold(observed: &Observed, before: Option<&Hold>) -> Hold {
    let guest = observed.guest.as_ref();
    let left = time_left(observed).and_then(|left| SignedDuration::try_from(left).ok());
    let limit = left.unwrap_or(DEADLINE).as_secs().max(1);
    let uid = guest
        .and_then(|guest| guest.metadata.uid.clone())
        .unwrap_or_default();
    // A guest that we have paused is not one that a user has paused: it has to be released.
    let ours = before
        .filter(|before| before.by == By::Pause && (before.uid.is_empty() || before.uid == uid));
    let by = match guest {
        None => By::Lock,
        Some(_) if ours.is_some() => By::Pause,
        Some(_) if is_paused(observed) => By::User,
        Some(_) if has_agent(observed) => By::Agent,
        Some(_) => By::Pause,
    };
    let now = observed.now.as_second();
    Hold {
        by,
        uid,
        since: now,
        // Another request does not prolong it.
        until: ours
            .filter(|ours| !ours.uid.is_empty())
            .map_or(now.saturating_add(limit), |ours| ours.until),
        agent_failed: ours.is_some_and(|ours| ours.agent_failed),
    }
}
