//! What is said about a VM.

use ::instancetype::reference::Reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::conditions::{self, Condition as _, Statement};
use kubevirt_api::vm_status::{
    VirtualMachineCondition, VirtualMachineConditionType as Type, VirtualMachineStatus,
    VolumeSnapshotStatus,
};
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as VmiType,
};
use kubevirt_api::{API_VERSION, VirtualMachine, reasons};
use reconcile::{Fragment, Key};
use serde_json::{Value, json};

use super::data_volumes::{self, Readiness};
use super::instancetype;
use super::observe::{Observed, generation};
use super::plan::{Plan, Restart, Step};
use super::printable::{Sight, printable};
use super::revision;
use crate::MANAGER;
use crate::view::Vm;

/// Conditions of a VM that are its own and never copied from the VMI.
const OWN: [&str; 3] = ["Ready", "Failure", "RestartRequired"];

/// What the pass did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// A VMI was made, or is known to exist though it is not seen yet.
    pub(super) created: bool,
    pub(super) deleted: bool,
    /// Instance type and preference, by the copies that were kept.
    pub(super) kept: Vec<Reference>,
    /// Reason and message of what went wrong.
    pub(super) failure: Option<(&'static str, String)>,
}

/// The status to be, from what was seen, planned and done.
pub(super) fn render(seen: &Observed, plan: &Plan, done: &Done) -> VirtualMachineStatus {
    let before = seen.vm.status();
    let vmi = seen.own_vmi();
    let exists = vmi.is_some() || done.created;
    let noted = plan.steps.iter().find_map(|step| match step {
        Step::NoteGeneration(now) => Some(*now),
        _ => None,
    });
    let generation = noted.or_else(|| generation(vmi?));
    let conditions = render_conditions(seen, plan, done);
    let is_ready = vmi.is_some() && conditions::is_true(&conditions, &Type::Ready);
    // A start that is still to come must not count as one that was.
    let is_start_due = plan.steps.contains(&Step::CreateVmi)
        || plan.look_again_in.is_some()
        || plan.waits_for.is_some()
        || plan.blocked.is_some();
    let is_started_under = exists || (before.run_strategy.is_some() && !is_start_due);
    let mut status = VirtualMachineStatus {
        created: exists.then_some(true),
        ready: is_ready.then_some(true),
        printable_status: Some(printable(&Sight { seen, plan, done })),
        conditions,
        state_change_requests: plan.requests.clone(),
        start_failure: plan.start_failure.clone(),
        observed_generation: generation.or(before.observed_generation),
        desired_generation: seen.vm.metadata.generation,
        volume_snapshot_statuses: snapshot_statuses(&seen.vm),
        run_strategy: match plan.strategy.word() {
            Some(word) if is_started_under => Some(word),
            _ => before.run_strategy.clone(),
        },
        ..before.into_owned()
    };
    instancetype::note_all(&seen.vm, &done.kept, &mut status);
    status
}

/// The piece of the status that the controller owns, or nothing when it is there already.
pub(super) fn fragment(vm: &Vm, key: &Key, status: &VirtualMachineStatus) -> Option<Value> {
    let before = vm.status();
    if *before == *status {
        return None;
    }
    let mut owned = json!({
        "printableStatus": status.printable_status,
        "conditions": status.conditions,
    });
    let optional = [
        ("created", json!(status.created)),
        ("ready", json!(status.ready)),
        ("startFailure", json!(status.start_failure)),
        ("observedGeneration", json!(status.observed_generation)),
        ("desiredGeneration", json!(status.desired_generation)),
        ("runStrategy", json!(status.run_strategy)),
        ("instancetypeRef", json!(status.instancetype_ref)),
        ("preferenceRef", json!(status.preference_ref)),
        (
            "volumeSnapshotStatuses",
            json!(Some(&status.volume_snapshot_statuses).filter(|all| !all.is_empty())),
        ),
    ];
    for (name, value) in optional.into_iter().filter(|(_, value)| !value.is_null()) {
        owned[name] = value;
    }
    // Others write requests, too. An apply that leaves out a list which is ours gives it up, so
    // only an empty one that was empty before may be left out.
    let lists = [&before.state_change_requests, &status.state_change_requests];
    if lists.iter().any(|list| !list.is_empty()) {
        owned["stateChangeRequests"] = json!(status.state_change_requests);
    }
    Some(json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachine::KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": vm.metadata.resource_version,
        },
        "status": owned,
    }))
}

pub(super) fn as_apply(key: &Key, body: Value) -> Fragment<'_> {
    Fragment {
        manager: MANAGER,
        key,
        subresource: Some("status"),
        body,
    }
}

fn render_conditions(seen: &Observed, plan: &Plan, done: &Done) -> Vec<VirtualMachineCondition> {
    let now = Time(seen.now);
    let mut all = seen.vm.status().conditions.clone();
    let vmi = seen.own_vmi();
    if let Some(vmi) = vmi {
        mirror(&mut all, &vmi.status.conditions);
    }
    if vmi.is_none() && !done.created && !seen.templates.is_empty() {
        tell_data_volumes(&mut all, seen, &now);
    }
    let ready = vmi.and_then(|vmi| conditions::find(&vmi.status.conditions, &VmiType::Ready));
    let says = match ready {
        Some(ready) => Statement {
            status: ready.status(),
            reason: ready.reason(),
            message: ready.message(),
        },
        None if vmi.is_some() => Statement::fails(
            reasons::vm::VMI_CONDITION_MISSING,
            "the instance says nothing yet",
        ),
        None => Statement::fails(reasons::vm::VMI_NOT_EXISTS, "there is no instance"),
    };
    conditions::set(&mut all, Type::Ready, &says, &now);
    match &plan.restart {
        Restart::Unclear => {}
        Restart::NotRequired => conditions::remove(&mut all, &Type::RestartRequired),
        Restart::Required(_) if done.deleted => {
            conditions::remove(&mut all, &Type::RestartRequired);
        }
        Restart::Required(changes) => {
            let says = Statement {
                message: &revision::message(changes),
                ..Statement::holds()
            };
            conditions::set(&mut all, Type::RestartRequired, &says, &now);
        }
    }
    match &done.failure {
        None => conditions::remove(&mut all, &Type::Failure),
        Some((reason, message)) => {
            let says = Statement {
                status: conditions::TRUE,
                reason,
                message,
            };
            conditions::set(&mut all, Type::Failure, &says, &now);
        }
    }
    all
}

/// Before there is an instance, which has this condition, too.
fn tell_data_volumes(all: &mut Vec<VirtualMachineCondition>, seen: &Observed, now: &Time) {
    let kind = Type::from(VmiType::DataVolumesReady.as_str());
    let message = match data_volumes::readiness(seen) {
        Readiness::Ready => {
            // That is what everybody expects, so only those read it who read otherwise before.
            if conditions::find(all, &kind).is_some() {
                let says = Statement {
                    status: conditions::TRUE,
                    reason: reasons::vmi::ALL_DVS_READY,
                    message: "",
                };
                conditions::set(all, kind, &says, now);
            }
            return;
        }
        Readiness::Waits(message) | Readiness::Impossible(message) => message,
    };
    let says = Statement::fails(reasons::vmi::NOT_ALL_DVS_READY, &message);
    conditions::set(all, kind, &says, now);
}

/// What was said last of data volumes.
pub(super) fn data_volumes_message(vm: &Vm) -> Option<String> {
    let kind = Type::from(VmiType::DataVolumesReady.as_str());
    let status = vm.status();
    let said = conditions::find(&status.conditions, &kind)?;
    Some(said.message().to_owned())
}

/// Copies the VMI's conditions, and drops copies of what it no longer has.
fn mirror(all: &mut Vec<VirtualMachineCondition>, theirs: &[VirtualMachineInstanceCondition]) {
    all.retain(|condition| {
        OWN.contains(&condition.type_.as_str()) || condition.type_ == Type::ManualRecoveryRequired
    });
    let copies = theirs
        .iter()
        .filter(|theirs| !OWN.contains(&theirs.type_.as_str()));
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

/// Which volumes a snapshot could take: none, as nothing here takes snapshots.
fn snapshot_statuses(vm: &Vm) -> Vec<VolumeSnapshotStatus> {
    let name = |volume: &Value| Some(volume.get("name")?.as_str()?.to_owned());
    let all = vm.volumes().iter().filter_map(|volume| {
        let is_claim =
            volume.get("persistentVolumeClaim").is_some() || volume.get("dataVolume").is_some();
        let reason = if is_claim {
            "no snapshot class is known for its claim"
        } else {
            "only claims can be taken"
        };
        Some(VolumeSnapshotStatus {
            name: name(volume)?,
            enabled: false,
            reason: Some(reason.to_owned()),
        })
    });
    all.collect()
}
