//! The status of a VM.

use ::instancetype::reference::Reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::conditions::{self, Condition as _, ConditionValue};
use kubevirt_api::vm_status::{
    VirtualMachineCondition, VirtualMachineConditionType as Type, VirtualMachineStatus,
    VolumeMigrationState, VolumeSnapshotStatus, VolumeUpdateState,
};
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as VmiType,
};
use kubevirt_api::{API_VERSION, VirtualMachine};
use reasons::Reason;
use reconcile::{Fragment, Key};
use serde_json::json;

use super::data_volumes::{self, Readiness};
use super::instancetype;
use super::memory_dump::Next;
use super::observe::{Observed, generation};
use super::plan::{Failure, Plan, Restart, Step};
use super::printable::{Situation, printable};
use super::revision;
use super::suspend::{self, State};
use super::view::Vm;
use crate::MANAGER;

/// Conditions of the VM itself, which are never copied from the VMI.
const OWN: [&str; 5] = [
    "Ready",
    "Failure",
    "RestartRequired",
    CHANGE_PENDING,
    suspend::CONDITION,
];
/// The VMI will follow a change of the VM, but cannot now.
const CHANGE_PENDING: &str = "ChangePending";
/// Of the VMI alone: it changes every few seconds.
const PROGRESS: &str = "MigrationProgress";

/// The results of the steps.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// A VMI was created, or is known to exist though the cache does not show it yet.
    pub(super) created: bool,
    pub(super) deleted: bool,
    /// Stored revisions of instance type and preference.
    pub(super) kept: Vec<Reference>,
    pub(super) failure: Option<Failure>,
    /// Why the running guest's VMI does not follow the VM.
    pub(super) not_followed: Option<String>,
    /// The request of a memory dump, if it was changed.
    pub(super) dump: Next,
    /// The condition of a VM that is suspended or resumed, if it changes.
    pub(super) suspend: suspend::Next,
}

/// The desired status, from the observed state, the plan and the results of its steps.
pub(super) fn render(observed: &Observed, plan: &Plan, done: &Done) -> VirtualMachineStatus {
    let before = observed.vm.status();
    let vmi = observed.own_vmi();
    let exists = vmi.is_some() || done.created;
    let noted = plan.steps.iter().find_map(|step| match step {
        Step::NoteGeneration(now) => Some(*now),
        _ => None,
    });
    let generation = noted.or_else(|| generation(vmi?));
    let conditions = render_conditions(observed, plan, done);
    let is_ready = vmi.is_some() && conditions::is_true(&conditions, &Type::Ready);
    // A pending start must not count as a started one.
    let is_start_pending = plan.steps.contains(&Step::CreateVmi)
        || plan.requeue_in.is_some()
        || plan.waits_for.is_some()
        || plan.blocked.is_some();
    let is_started_under = exists || (before.run_strategy.is_some() && !is_start_pending);
    let mut status = VirtualMachineStatus {
        created: exists.then_some(true),
        ready: is_ready.then_some(true),
        printable_status: Some(printable(&Situation {
            observed,
            plan,
            done,
        })),
        conditions,
        state_change_requests: plan.requests.clone(),
        start_failure: plan.start_failure.clone(),
        observed_generation: generation.or(before.observed_generation),
        desired_generation: observed.vm.metadata.generation,
        volume_snapshot_statuses: snapshot_statuses(observed),
        run_strategy: match plan.strategy.status_value() {
            Some(value) if is_started_under => Some(value),
            _ => before.run_strategy.clone(),
        },
        volume_update_state: (!plan.moves.recorded.is_empty()).then(|| VolumeUpdateState {
            volume_migration_state: Some(VolumeMigrationState {
                migrated_volumes: plan.moves.recorded.clone(),
            }),
        }),
        ..before.into_owned()
    };
    match &done.dump {
        Next::Stays => {}
        Next::Is(request) => status.memory_dump_request = Some(request.clone()),
        Next::Gone => status.memory_dump_request = None,
    }
    instancetype::note_all(&observed.vm, &done.kept, &mut status);
    status
}

/// The part of the status that the controller owns, or `None` if nothing changed.
pub(super) fn fragment<'a>(
    vm: &Vm,
    key: &'a Key,
    status: &VirtualMachineStatus,
) -> Option<Fragment<'a>> {
    let before = vm.status();
    if *before == *status {
        return None;
    }
    let owned = json!({
        "printableStatus": status.printable_status,
        "conditions": status.conditions,
        "created": status.created,
        "ready": status.ready,
        "startFailure": status.start_failure,
        "observedGeneration": status.observed_generation,
        "desiredGeneration": status.desired_generation,
        "runStrategy": status.run_strategy,
        "instancetypeRef": status.instancetype_ref,
        "preferenceRef": status.preference_ref,
        "volumeSnapshotStatuses": status.volume_snapshot_statuses,
        "stateChangeRequests": status.state_change_requests,
        "volumeUpdateState": status.volume_update_state,
    });
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachine::KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": vm.metadata.resource_version,
        },
        "status": owned,
    });
    let fragment = Fragment::of_status(MANAGER, key, body);
    // virt-api writes requests as well, so leaving the list out would not empty it.
    Some(if before.state_change_requests.is_empty() {
        fragment
    } else {
        fragment.with_list_emptied("stateChangeRequests")
    })
}

fn render_conditions(
    observed: &Observed,
    plan: &Plan,
    done: &Done,
) -> Vec<VirtualMachineCondition> {
    let now = Time(observed.now);
    let mut all = observed.vm.status().conditions.clone();
    let vmi = observed.own_vmi();
    if let Some(vmi) = vmi {
        mirror(&mut all, &vmi.status.conditions);
    }
    if vmi.is_none() && !done.created && !observed.templates.is_empty() {
        set_data_volumes_ready(&mut all, observed, &now);
    }
    let ready = vmi.and_then(|vmi| conditions::find(&vmi.status.conditions, &VmiType::Ready));
    let value = match ready {
        Some(ready) => ConditionValue {
            status: ready.status(),
            reason: ready.reason(),
            message: ready.message(),
        },
        None if vmi.is_some() => ConditionValue::fails(
            Reason::VMIConditionMissing,
            "the VMI has no such condition yet",
        ),
        None => ConditionValue::fails(Reason::VMINotExists, "there is no VMI"),
    };
    conditions::set(&mut all, Type::Ready, &value, &now);
    set_restart_required(&mut all, plan, done, &now);
    set_change_pending(&mut all, plan, &now);
    set_suspended(&mut all, observed, done, &now);
    set_manual_recovery(&mut all, observed, plan, &now);
    match &done.failure {
        None => conditions::remove(&mut all, &Type::Failure),
        Some(Failure { reason, message }) => {
            let value = ConditionValue {
                status: conditions::TRUE,
                reason: reason.as_str(),
                message: &reason.advise(message),
            };
            conditions::set(&mut all, Type::Failure, &value, &now);
        }
    }
    all
}

fn set_restart_required(
    all: &mut Vec<VirtualMachineCondition>,
    plan: &Plan,
    done: &Done,
    now: &Time,
) {
    let restart = match (&plan.restart, &done.not_followed) {
        (Restart::NotRequired, Some(why)) => {
            let change = format!("template.spec (the VMI was not changed: {why})");
            Restart::Required(vec![change])
        }
        (Restart::UnlessStored(changes), _) if done.failure.is_some() => {
            Restart::of(changes.clone())
        }
        (planned, _) => planned.clone(),
    };
    match restart {
        Restart::Unknown | Restart::UnlessStored(_) => {}
        Restart::Required(changes) if !done.deleted => {
            let value = ConditionValue {
                message: &revision::message(&changes),
                ..ConditionValue::holds()
            };
            conditions::set(all, Type::RestartRequired, &value, now);
        }
        Restart::NotRequired | Restart::Required(_) => {
            conditions::remove(all, &Type::RestartRequired);
        }
    }
}

fn set_change_pending(all: &mut Vec<VirtualMachineCondition>, plan: &Plan, now: &Time) {
    let kind = Type::from(CHANGE_PENDING);
    let why = plan.follow.waits.as_ref().or(plan.moves.waits.as_ref());
    let Some(why) = why else {
        return conditions::remove(all, &kind);
    };
    let message = format!("the running guest follows the change of the VM later: {why}");
    let value = ConditionValue {
        message: &message,
        ..ConditionValue::holds()
    };
    conditions::set(all, kind, &value, now);
}

fn set_manual_recovery(
    all: &mut Vec<VirtualMachineCondition>,
    observed: &Observed,
    plan: &Plan,
    now: &Time,
) {
    if observed.vmi.is_none() {
        // The copy of a VMI that is gone.
        conditions::remove(all, &Type::from(VmiType::VolumesChange.as_str()));
    }
    match &plan.moves.recovery {
        None => conditions::remove(all, &Type::ManualRecoveryRequired),
        Some(message) => {
            let value = ConditionValue {
                status: conditions::TRUE,
                reason: Reason::ManualRecoveryRequired.as_str(),
                message,
            };
            conditions::set(all, Type::ManualRecoveryRequired, &value, now);
        }
    }
}

fn set_suspended(
    all: &mut Vec<VirtualMachineCondition>,
    observed: &Observed,
    done: &Done,
    now: &Time,
) {
    let kind = Type::from(suspend::CONDITION);
    match &done.suspend {
        suspend::Next::Is(state, message) => {
            let reason = state.reason();
            let value = ConditionValue {
                status: state.status(),
                reason: reason.as_str(),
                message: &reason.advise(message),
            };
            conditions::set(all, kind, &value, now);
        }
        suspend::Next::Gone => conditions::remove(all, &kind),
        // It was about the guest before.
        suspend::Next::Stays
            if done.created && State::of(&observed.vm) == Some(State::SuspendFailed) =>
        {
            conditions::remove(all, &kind);
        }
        suspend::Next::Stays => {}
    }
}

/// Sets the condition before there is a VMI, which then has the same condition.
fn set_data_volumes_ready(all: &mut Vec<VirtualMachineCondition>, observed: &Observed, now: &Time) {
    let kind = Type::from(VmiType::DataVolumesReady.as_str());
    let message = match data_volumes::readiness(observed) {
        Readiness::Ready => {
            // True is the default, so it is set only to replace False.
            if conditions::find(all, &kind).is_some() {
                let value = ConditionValue {
                    status: conditions::TRUE,
                    reason: Reason::AllDVsReady.as_str(),
                    message: "",
                };
                conditions::set(all, kind, &value, now);
            }
            return;
        }
        Readiness::Waits(message) | Readiness::Impossible(message) => message,
    };
    let value = ConditionValue::fails(Reason::NotAllDVsReady, &message);
    conditions::set(all, kind, &value, now);
}

/// The last message about data volumes.
pub(super) fn data_volumes_message(vm: &Vm) -> Option<String> {
    let kind = Type::from(VmiType::DataVolumesReady.as_str());
    let status = vm.status();
    let condition = conditions::find(&status.conditions, &kind)?;
    Some(condition.message().to_owned())
}

/// Copies the VMI's conditions, and drops copies of conditions that it no longer has.
fn mirror(all: &mut Vec<VirtualMachineCondition>, theirs: &[VirtualMachineInstanceCondition]) {
    all.retain(|condition| {
        OWN.contains(&condition.type_.as_str()) || condition.type_ == Type::ManualRecoveryRequired
    });
    let copies = theirs
        .iter()
        .filter(|theirs| !OWN.contains(&theirs.type_.as_str()))
        .filter(|theirs| theirs.type_.as_str() != PROGRESS);
    all.extend(copies.map(|theirs| VirtualMachineCondition {
        type_: Type::from(theirs.type_.as_str()),
        status: theirs.status.clone(),
        last_probe_time: theirs.last_probe_time.clone(),
        last_transition_time: theirs.last_transition_time.clone(),
        reason: theirs.reason.clone(),
        message: theirs.message.clone(),
    }));
    conditions::sort(all);
}

/// Which volumes support snapshots.
fn snapshot_statuses(observed: &Observed) -> Vec<VolumeSnapshotStatus> {
    let all = observed.vm.volumes().iter().filter_map(|volume| {
        let name = volume.get("name")?.as_str()?;
        let is_claim =
            volume.get("persistentVolumeClaim").is_some() || volume.get("dataVolume").is_some();
        let problem = match observed.copyable.get(name) {
            Some(Ok(())) => None,
            Some(Err(problem)) => Some(problem.as_str()),
            None if is_claim => Some("its persistent volume claim does not exist"),
            None => Some("only persistent volume claims support snapshots"),
        };
        Some(VolumeSnapshotStatus {
            name: name.to_owned(),
            enabled: problem.is_none(),
            reason: problem.map(ToOwned::to_owned),
        })
    });
    all.collect()
}
