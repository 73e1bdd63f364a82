//! Pure planning: maps the observed state to the next step, and to the state that users see.

use kubevirt_api::clone::VirtualMachineClonePhase as Phase;
use kubevirt_api::conditions;
use kubevirt_api::domain::DomainSpec;
use kubevirt_api::restore::VirtualMachineRestore;
use kubevirt_api::snapshot::{
    Condition, ConditionType, VirtualMachineSnapshot, VirtualMachineSnapshotPhase,
};
use kubevirt_api::{VirtualMachine, annotations};
use model::KeptState;
use reasons::Reason;
use serde_json::Value;

use super::copy::{check_filters, restore, target_name};
use super::observe::{Observed, is_of_vm, snapshot_name};
use crate::operation;
use crate::restore::{Target, mark, new_vm, shared_claims};
use crate::snapshot::claim_of;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    CreateSnapshot,
    CreateRestore(Box<VirtualMachineRestore>),
    DeleteRestore,
    /// The own one, never that of a user.
    DeleteSnapshot,
    DeleteClone,
}

/// A reason and what happened.
pub(super) type Cause = (Reason, String);

/// What users see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is done yet.
    Pending(Cause),
    /// With what the helper waits for.
    Snapshotting(Option<Cause>),
    Restoring(Option<Cause>),
    CreatingTarget(Option<Cause>),
    /// With the claims whose data is still in the snapshot.
    Succeeded(Vec<String>),
    Failed(Cause),
    /// Shown already.
    Ended,
}

pub(super) type Plan = operation::Plan<Step, Progress>;

pub(super) fn plan(observed: &Observed) -> Plan {
    if observed.clone.metadata.deletion_timestamp.is_some() {
        // The helpers go with the clone.
        return Plan::state(Progress::Ended);
    }
    match observed.phase() {
        Phase::Failed => clean_up(observed, Progress::Ended),
        Phase::Succeeded => success(observed),
        _ => progress(observed),
    }
}

fn success(observed: &Observed) -> Plan {
    if observed.target.is_none() {
        return Plan::step(Step::DeleteClone, Progress::Ended);
    }
    if observed.unbound.is_empty() {
        return clean_up(observed, Progress::Succeeded(Vec::new()));
    }
    Plan::state(Progress::Succeeded(observed.unbound.clone()))
}

fn clean_up(observed: &Observed, progress: Progress) -> Plan {
    let restore = observed.restore.as_ref();
    if restore.is_some_and(|one| one.metadata.deletion_timestamp.is_none()) {
        return Plan::step(Step::DeleteRestore, progress);
    }
    let snapshot = observed.snapshot.as_ref();
    let snapshot = snapshot.filter(|_| is_of_vm(&observed.clone));
    if snapshot.is_some_and(|one| one.metadata.deletion_timestamp.is_none()) {
        return Plan::step(Step::DeleteSnapshot, progress);
    }
    Plan::state(progress)
}

fn failed(reason: Reason, message: impl Into<String>) -> Plan {
    Plan::state(Progress::Failed((reason, message.into())))
}

fn pending(reason: Reason, message: impl Into<String>) -> Plan {
    Plan::state(Progress::Pending((reason, message.into())))
}

fn progress(observed: &Observed) -> Plan {
    if let Some(restore) = &observed.restore {
        return restoring(observed, restore);
    }
    let name = snapshot_name(&observed.clone);
    match &observed.snapshot {
        Some(snapshot) => of_snapshot(observed, snapshot),
        None if !is_of_vm(&observed.clone) => pending(
            Reason::SourceDoesNotExist,
            format!("VirtualMachineSnapshot {name} does not exist"),
        ),
        None if observed.noted_snapshot().is_some() => failed(
            Reason::SnapshotDeleted,
            format!("VirtualMachineSnapshot {name} is gone"),
        ),
        None => begin(observed),
    }
}

/// The first step of a clone of a VM.
fn begin(observed: &Observed) -> Plan {
    let name = &observed.clone.spec.source.name;
    let Some(source) = &observed.source else {
        return pending(
            Reason::SourceDoesNotExist,
            format!("VirtualMachine {name} does not exist"),
        );
    };
    if !source.object["metadata"]["deletionTimestamp"].is_null() {
        return pending(
            Reason::SourceDoesNotExist,
            format!("VirtualMachine {name} is being deleted"),
        );
    }
    if let Some(problem) = obstacle(observed, &source.object) {
        return problem;
    }
    if let Err(message) = check_filters(&observed.clone.spec) {
        return failed(Reason::CloneNotPossible, message);
    }
    let not_copyable = not_copyable(source);
    if !not_copyable.is_empty() {
        return pending(Reason::VMVolumeSnapshotsInvalid, not_copyable.join("; "));
    }
    Plan::step(Step::CreateSnapshot, Progress::Snapshotting(None))
}

/// Why no clone can be made of that VM.
fn obstacle(observed: &Observed, source: &Value) -> Option<Plan> {
    let source_vm = source["metadata"]["name"].as_str().unwrap_or_default();
    if observed.target.is_some() {
        let target = target_name(&observed.clone, source_vm);
        let message = format!("VirtualMachine {target} exists already");
        return Some(failed(Reason::CloneTargetExists, message));
    }
    // A preference may ask for it, too.
    match keeps_state(observed.expanded.as_ref().unwrap_or(source)) {
        Ok(true) => Some(failed(
            Reason::SourceVMWithBackendStorageInvalid,
            format!("VirtualMachine {source_vm} keeps state of its TPM or firmware"),
        )),
        Ok(false) => None,
        Err(error) => Some(failed(
            Reason::CloneNotPossible,
            format!("VirtualMachine {source_vm} cannot be read: {error}"),
        )),
    }
}

/// Whether a VM keeps state outside of its disks, which no copy of it can get.
pub(crate) fn keeps_state(vm: &Value) -> serde_json::Result<bool> {
    let domain = vm.pointer("/spec/template/spec/domain").cloned();
    let domain: DomainSpec = serde_json::from_value(domain.unwrap_or_default())?;
    Ok(KeptState::is_bound_to_vm(&domain))
}

/// Volumes with a claim that a snapshot would leave out.
pub(crate) fn not_copyable(source: &Target) -> Vec<String> {
    let volumes = source.object.pointer("/spec/template/spec/volumes");
    let volumes = volumes.and_then(Value::as_array).into_iter().flatten();
    let with_claim = volumes.filter(|volume| claim_of(volume).is_some());
    let names = with_claim.filter_map(|volume| volume["name"].as_str());
    let problem = |name: &str| {
        let mut known = source.status.volume_snapshot_statuses.iter();
        match known.find(|one| one.name == name) {
            Some(status) if status.enabled => None,
            Some(status) => {
                let reason = status.reason.as_deref().unwrap_or("it cannot be copied");
                Some(format!("volume {name}: {reason}"))
            }
            None => Some(format!(
                "volume {name}: it is not known yet whether it can be copied"
            )),
        }
    };
    names.filter_map(problem).collect()
}

/// There is a snapshot, and no restore yet.
fn of_snapshot(observed: &Observed, snapshot: &VirtualMachineSnapshot) -> Plan {
    let name = snapshot_name(&observed.clone);
    let status = snapshot.status.as_ref();
    let all = status.map_or(&[][..], |status| status.conditions.as_slice());
    if snapshot.metadata.deletion_timestamp.is_some() {
        let message = format!("VirtualMachineSnapshot {name} is being deleted");
        return if is_of_vm(&observed.clone) {
            failed(Reason::SnapshotDeleted, message)
        } else {
            pending(Reason::SourceDoesNotExist, message)
        };
    }
    let phase = status.and_then(|status| status.phase.as_ref());
    if phase == Some(&VirtualMachineSnapshotPhase::Failed) {
        let cause = cause(all, &ConditionType::Failure);
        let (reason, message) = cause.unwrap_or((Reason::SnapshotContentInvalid, String::new()));
        return failed(reason, format!("VirtualMachineSnapshot {name}: {message}"));
    }
    if status.and_then(|status| status.ready_to_use) != Some(true) {
        let cause = cause(all, &ConditionType::Ready);
        return Plan::state(Progress::Snapshotting(cause));
    }
    if observed.copied.is_null() {
        let message = format!("the content of VirtualMachineSnapshot {name} is gone");
        return failed(Reason::SnapshotContentInvalid, message);
    }
    begin_restore(observed, &name)
}

/// Everything is tried out before anything is created.
fn begin_restore(observed: &Observed, snapshot: &str) -> Plan {
    let source = &observed.copied;
    if let Some(problem) = obstacle(observed, source) {
        return problem;
    }
    let planned = restore(&observed.clone, snapshot, source);
    let planned = planned.and_then(|planned| {
        let vm = new_vm(&planned, source, &observed.backups);
        let vm = vm.map_err(|message| format!("spec.patches: {message}"))?;
        Ok((planned, vm))
    });
    let (planned, vm) = match planned {
        Ok(planned) => planned,
        Err(message) => return failed(Reason::CloneNotPossible, message),
    };
    let shared = shared_claims(source, &vm);
    if !shared.is_empty() {
        return failed(
            Reason::SnapshotContentInvalid,
            format!(
                "the claims {} are not in VirtualMachineSnapshot {snapshot}",
                shared.join(", ")
            ),
        );
    }
    let step = Step::CreateRestore(Box::new(planned));
    Plan::step(step, Progress::Restoring(None))
}

fn restoring(observed: &Observed, restore: &VirtualMachineRestore) -> Plan {
    let status = restore.status.as_ref();
    let all = status.map_or(&[][..], |status| status.conditions.as_slice());
    if status.and_then(|status| status.complete) == Some(true) {
        return Plan::state(Progress::Succeeded(observed.unbound.clone()));
    }
    if conditions::is_true(all, &ConditionType::Failure) {
        let cause = cause(all, &ConditionType::Failure);
        let (reason, message) = cause.unwrap_or((Reason::CloneNotPossible, String::new()));
        return failed(reason, message);
    }
    if observed.snapshot.is_none() {
        let name = &restore.spec.virtual_machine_snapshot_name;
        let message = format!("VirtualMachineSnapshot {name} is gone");
        return failed(Reason::SnapshotDeleted, message);
    }
    let cause = cause(all, &ConditionType::Ready);
    let mark = mark(restore);
    let is_created = observed.target.as_ref().is_some_and(|target| {
        target.annotation(annotations::LAST_RESTORE_UID) == Some(mark.as_str())
    });
    Plan::state(if is_created {
        Progress::CreatingTarget(cause)
    } else {
        Progress::Restoring(cause)
    })
}

/// Reason and message of a condition of a helper, without the remedy; `None` if it has no message.
pub(crate) fn cause(all: &[Condition], kind: &ConditionType) -> Option<Cause> {
    let condition = all.iter().find(|one| one.type_ == *kind)?;
    let message = condition
        .message
        .as_deref()
        .filter(|text| !text.is_empty())?;
    let reason: Reason = condition.reason.as_deref()?.parse().ok()?;
    Some((reason, reason.without_advice(message).to_owned()))
}

/// The kind of the source, for events.
pub(super) fn source_kind(observed: &Observed) -> &'static str {
    if is_of_vm(&observed.clone) {
        VirtualMachine::KIND
    } else {
        VirtualMachineSnapshot::KIND
    }
}
