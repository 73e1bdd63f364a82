//! Pure planning: maps the observed state to the next step, and to the state that users see.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::conditions;
use kubevirt_api::restore::{TargetReadinessPolicy as Policy, VolumeOwnershipPolicy};
use kubevirt_api::snapshot::ConditionType;
use kubevirt_api::vm_status::VirtualMachineConditionType;
use kubevirt_api::{annotations, finalizers};
use reasons::Reason;
use serde_json::Value;

use super::claims::{is_in_place, is_ours, mark};
use super::observe::{Disk, Observed, Target};
use super::target::{Replaced, claims_of, restored, shared_claims};
use crate::operation;

/// How long a VM may take to stop by default.
const GRACE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    AddFinalizer,
    RemoveFinalizer,
    Stop,
    Lock,
    Unlock,
    /// Of the disk with that index.
    CreateClaim(usize),
    /// Together with its data volume, which would create it again.
    DeleteClaim(usize),
    /// With metadata and spec.
    CreateTarget(Value),
    UpdateTarget(Value),
    /// The claim goes with the VM, or with nothing.
    OwnClaim(usize),
    /// Deletes a claim that no VM has got.
    DropClaim(Box<ObjectMeta>),
    Complete,
}

/// What users see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    Restoring,
    Waits {
        reason: Reason,
        message: String,
    },
    Failed {
        reason: Reason,
        message: String,
    },
    /// Shown already.
    Ended,
}

pub(super) type Plan = operation::Plan<Step, Progress>;

fn next(step: Step) -> Plan {
    Plan::step(step, Progress::Restoring)
}

fn waits(reason: Reason, message: impl Into<String>) -> Plan {
    Plan::retried(Progress::Waits {
        reason,
        message: message.into(),
    })
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let metadata = &observed.restore.metadata;
    let mut own = metadata.finalizers.iter().flatten();
    let has_finalizer = own.any(|one| one == finalizers::RESTORE);
    let is_deleted = metadata.deletion_timestamp.is_some();
    let status = observed.restore.status.as_ref();
    let has_failed = status
        .is_some_and(|status| conditions::is_true(&status.conditions, &ConditionType::Failure));
    if is_deleted || has_failed || observed.is_complete() {
        let leftover = observed.leftovers.first().filter(|_| !is_done(observed));
        let step = match (observed.is_locked(), is_deleted && has_finalizer) {
            (true, _) => Some(Step::Unlock),
            (false, true) => Some(match leftover {
                Some(claim) => Step::DropClaim(Box::new(claim.clone())),
                None => Step::RemoveFinalizer,
            }),
            (false, false) => None,
        };
        return Plan {
            step,
            ..Plan::state(Progress::Ended)
        };
    }
    if !has_finalizer {
        return next(Step::AddFinalizer);
    }
    let plan = restore(observed);
    if observed.is_locked() && matches!(plan.progress, Progress::Failed { .. }) {
        // A VM whose restore has ended can be started.
        return next(Step::Unlock);
    }
    plan
}

fn restore(observed: &Observed) -> Plan {
    let spec = &observed.restore.spec;
    if observed.source.is_null() {
        let name = &spec.virtual_machine_snapshot_name;
        let message = match &observed.snapshot {
            None => format!("VirtualMachineSnapshot {name} does not exist"),
            Some(_) => format!("VirtualMachineSnapshot {name} is not ready"),
        };
        return waits(Reason::RestoreSourceNotReady, message);
    }
    let snapshot = observed.snapshot.as_ref();
    if snapshot.is_some_and(|one| one.metadata.deletion_timestamp.is_some())
        && observed.disks.iter().any(|disk| !has_claim(observed, disk))
    {
        let name = &spec.virtual_machine_snapshot_name;
        let message = format!("VirtualMachineSnapshot {name} is being deleted");
        return waits(Reason::RestoreSourceNotReady, message);
    }
    if let Some(problem) = copies_missing(observed) {
        return problem;
    }
    // Before anything is changed.
    if !is_done(observed)
        && let Err(message) = wanted(observed)
    {
        return Plan::state(Progress::Failed {
            reason: Reason::RestoreNotPossible,
            message,
        });
    }
    if let Some(target) = &observed.target
        && let Some(plan) = prepare(observed, target)
    {
        return plan;
    }
    if let Some(plan) = claims(observed) {
        return plan;
    }
    finish(observed)
}

/// Whether the disk has its new claim.
fn has_claim(observed: &Observed, disk: &Disk) -> bool {
    let claim = disk.claim.as_ref();
    claim.is_some_and(|claim| is_ours(&observed.restore, claim))
}

/// A claim that is not created yet needs its volume snapshot.
fn copies_missing(observed: &Observed) -> Option<Plan> {
    let disk = observed.disks.iter().find(|disk| {
        let copy = disk.copy.as_ref();
        let copy = copy.filter(|copy| copy.metadata.deletion_timestamp.is_none());
        let status = copy.and_then(|copy| copy.status.as_ref());
        !has_claim(observed, disk) && status.and_then(|status| status.ready_to_use) != Some(true)
    })?;
    let name = disk
        .backup
        .volume_snapshot_name
        .as_deref()
        .unwrap_or_default();
    let message = format!(
        "volume snapshot {name} of volume {} is gone, being deleted or not ready",
        disk.backup.volume_name
    );
    Some(waits(Reason::RestoreSourceNotReady, message))
}

/// Stops and locks the VM.
fn prepare(observed: &Observed, target: &Target) -> Option<Plan> {
    let restore = &observed.restore;
    let name = &restore.spec.target.name;
    let snapshot = observed.snapshot.as_ref();
    let source = snapshot.and_then(|one| one.status.as_ref()?.source_uid.as_deref());
    if source != Some(target.uid.as_str()) && !is_done(observed) {
        return Some(Plan::state(Progress::Failed {
            reason: Reason::RestoreNotPossible,
            message: format!(
                "VirtualMachine {name} exists and is not the one that the snapshot was taken of"
            ),
        }));
    }
    if !target.object["metadata"]["deletionTimestamp"].is_null() {
        let message = format!("VirtualMachine {name} is being deleted");
        return Some(waits(Reason::RestoreTargetNotReady, message));
    }
    if is_done(observed) {
        // It may run.
        return None;
    }
    if observed.is_locked() {
        // It was created before the VM controller observed the lock.
        return observed.guest.is_some().then(|| next(Step::Unlock));
    }
    let other = [
        ("snapshot", &target.status.snapshot_in_progress),
        ("restore", &target.status.restore_in_progress),
    ];
    let other = other
        .into_iter()
        .find_map(|(what, name)| Some((what, name.as_ref()?)));
    if let Some((what, other)) = other {
        let message = format!("{what} {other} of the VM is in progress");
        return Some(waits(Reason::RestoreTargetNotReady, message));
    }
    if observed.guest.is_some() {
        return Some(running(observed));
    }
    let suspended = VirtualMachineConditionType::from("Suspended");
    if conditions::is_true(&target.status.conditions, &suspended) {
        let message = format!(
            "VirtualMachine {name} is suspended, and its memory belongs to the disks that it has: let it go \
             on by virtctl resume and stop it, or delete its state by virtctl resume --discard-state"
        );
        return Some(waits(Reason::RestoreTargetNotReady, message));
    }
    Some(next(Step::Lock))
}

/// The guest is still there.
fn running(observed: &Observed) -> Plan {
    let restore = &observed.restore;
    let name = &restore.spec.target.name;
    let failed = |why: &str| {
        Plan::state(Progress::Failed {
            reason: Reason::RestoreTargetFailed,
            message: format!("VirtualMachine {name} is running{why}"),
        })
    };
    let is_stopping = observed
        .guest
        .as_ref()
        .is_some_and(crate::view::Guest::is_deleting);
    match restore.spec.target_readiness_policy {
        Some(Policy::FailImmediate) => failed(""),
        Some(Policy::StopTarget) => Plan {
            step: (!is_stopping).then_some(Step::Stop),
            ..waits(
                Reason::RestoreTargetNotReady,
                format!("VirtualMachine {name} is being stopped"),
            )
        },
        Some(Policy::WaitEventually) => waits(
            Reason::RestoreTargetNotReady,
            format!("VirtualMachine {name} is running: stop it"),
        ),
        _ => {
            let created = restore.metadata.creation_timestamp.as_ref();
            let end = created.and_then(|time| time.0.checked_add(GRACE).ok());
            if observed.now >= end.unwrap_or(Timestamp::MAX) {
                return failed(" and was not stopped within 5 minutes");
            }
            waits(
                Reason::RestoreTargetNotReady,
                format!("VirtualMachine {name} is running: stop it within 5 minutes"),
            )
        }
    }
}

fn claims(observed: &Observed) -> Option<Plan> {
    let restore = &observed.restore;
    for (index, disk) in observed.disks.iter().enumerate() {
        let Some(claim) = &disk.claim else {
            return Some(next(Step::CreateClaim(index)));
        };
        if is_ours(restore, claim) {
            continue;
        }
        let name = &disk.name;
        if !is_in_place(restore) || !is_replaceable(observed, disk) {
            return Some(waits(
                Reason::RestoreNotPossible,
                format!(
                    "persistentvolumeclaim {name} exists and was not created by this restore: \
                     delete it, or use other names"
                ),
            ));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Some(waits(
                Reason::RestoreInProgress,
                format!("persistentvolumeclaim {name} is being deleted"),
            ));
        }
        return Some(next(Step::DeleteClaim(index)));
    }
    None
}

/// Whether `InPlace` may delete the claim: the stopped and locked VM names it. No other claim is ever deleted, not
/// even the one that was copied, if the VM does not use it any more.
fn is_replaceable(observed: &Observed, disk: &Disk) -> bool {
    let target = observed.target.as_ref();
    observed.is_locked()
        && observed.guest.is_none()
        && disk.name == super::claims::old_name(&disk.backup)
        && target.is_some_and(|target| claims_of(&target.object).contains(&disk.name))
}

/// Whether the VM has its disks.
fn is_done(observed: &Observed) -> bool {
    let mark = mark(&observed.restore);
    let target = observed.target.as_ref();
    target.is_some_and(|target| {
        target.annotation(annotations::LAST_RESTORE_UID) == Some(mark.as_str())
    })
}

/// The VM as it is to be; the message if that is not possible.
fn wanted(observed: &Observed) -> Result<Value, String> {
    let restore = &observed.restore;
    let replaced: Vec<Replaced> = observed.disks.iter().map(replaced).collect();
    let target = observed.target.as_ref();
    let existing = target.map(|target| &target.object);
    let vm = restored(restore, &observed.source, existing, &replaced);
    let vm = vm.map_err(|message| format!("spec.patches: {message}"))?;
    let source = observed.source["metadata"]["name"]
        .as_str()
        .unwrap_or_default();
    if existing.is_some() || source == restore.spec.target.name {
        return Ok(vm);
    }
    let shared = shared_claims(&observed.source, &vm);
    if shared.is_empty() {
        return Ok(vm);
    }
    Err(format!(
        "the new VM would use claims of VirtualMachine {source}: {}; leave out volumes that are not in \
         the snapshot by spec.patches, and use another volumeRestorePolicy than InPlace",
        shared.join(", ")
    ))
}

/// All claims exist: the VM takes them.
fn finish(observed: &Observed) -> Plan {
    let restore = &observed.restore;
    let target = observed.target.as_ref();
    if !is_done(observed) {
        let vm = match wanted(observed) {
            Ok(vm) => vm,
            Err(message) => {
                return Plan::state(Progress::Failed {
                    reason: Reason::RestoreNotPossible,
                    message,
                });
            }
        };
        if target.is_some() {
            return next(Step::UpdateTarget(vm));
        }
        return next(Step::CreateTarget(vm));
    }
    let owner = target
        .filter(|_| restore.spec.volume_ownership_policy != Some(VolumeOwnershipPolicy::None));
    let wanted = owner.map(|target| target.uid.as_str());
    let is_owned = |disk: &&Disk| {
        let claim = disk.claim.as_ref();
        let owners = claim.and_then(|claim| claim.metadata.owner_references.as_ref());
        let mut owners = owners.into_iter().flatten();
        match wanted {
            Some(uid) => owners.any(|owner| owner.uid == uid),
            None => true,
        }
    };
    match observed.disks.iter().position(|disk| !is_owned(&disk)) {
        Some(index) => next(Step::OwnClaim(index)),
        // A VM whose restore has ended can be started.
        None if observed.is_locked() => next(Step::Unlock),
        None => next(Step::Complete),
    }
}

fn replaced(disk: &Disk) -> Replaced {
    Replaced {
        volume: disk.backup.volume_name.clone(),
        claim: disk.name.clone(),
    }
}
