//! What is said about a VM.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::conditions::{self, Condition as _, Statement};
use kubevirt_api::vm_status::{
    VirtualMachineCondition, VirtualMachineConditionType as Type,
    VirtualMachinePrintableStatus as Printable, VirtualMachineStatus,
};
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as VmiType,
    VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus,
};
use kubevirt_api::{API_VERSION, VirtualMachine, annotations, reasons};
use reconcile::{Fragment, Key};
use serde_json::{Value, json};

use super::observe::{Observed, is_final, phase};
use super::plan::{Plan, Step};
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
    /// Reason and message of what went wrong.
    pub(super) failure: Option<(&'static str, String)>,
}

/// The status to be, from what was seen, planned and done.
pub(super) fn render(seen: &Observed, plan: &Plan, done: &Done) -> VirtualMachineStatus {
    let before = seen.vm.status();
    let vmi = seen.own_vmi();
    let exists = vmi.is_some() || done.created;
    let generation = vmi.and_then(|vmi| {
        let annotations = vmi.metadata.annotations.as_ref()?;
        annotations.get(annotations::VM_GENERATION)?.parse().ok()
    });
    let conditions = render_conditions(seen, done);
    let is_ready = vmi.is_some() && conditions::is_true(&conditions, &Type::Ready);
    // A start that is still to come must not count as one that was.
    let is_start_due = plan.steps.contains(&Step::CreateVmi)
        || plan.look_again_in.is_some()
        || plan.blocked.is_some();
    let is_started_under = exists || (before.run_strategy.is_some() && !is_start_due);
    VirtualMachineStatus {
        created: exists.then_some(true),
        ready: is_ready.then_some(true),
        printable_status: Some(printable(seen, plan, done)),
        conditions,
        state_change_requests: plan.requests.clone(),
        start_failure: plan.start_failure.clone(),
        observed_generation: generation.or(before.observed_generation),
        desired_generation: seen.vm.metadata.generation,
        run_strategy: match plan.strategy.word() {
            Some(word) if is_started_under => Some(word),
            _ => before.run_strategy.clone(),
        },
        ..before.into_owned()
    }
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

fn render_conditions(seen: &Observed, done: &Done) -> Vec<VirtualMachineCondition> {
    let now = Time(seen.now);
    let mut all = seen.vm.status().conditions.clone();
    let vmi = seen.own_vmi().and_then(|vmi| vmi.status.as_ref());
    if seen.own_vmi().is_some() {
        let theirs = vmi.map_or(&[][..], |status| &status.conditions);
        mirror(&mut all, theirs);
    }
    let ready = vmi.and_then(|status| conditions::find(&status.conditions, &VmiType::Ready));
    let says = match ready {
        Some(ready) => Statement {
            status: ready.status(),
            reason: ready.reason(),
            message: ready.message(),
        },
        None if seen.own_vmi().is_some() => Statement::fails(
            reasons::vm::VMI_CONDITION_MISSING,
            "the instance says nothing yet",
        ),
        None => Statement::fails(reasons::vm::VMI_NOT_EXISTS, "there is no instance"),
    };
    conditions::set(&mut all, Type::Ready, &says, &now);
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

/// The one word for tables; first match wins.
fn printable(seen: &Observed, plan: &Plan, done: &Done) -> Printable {
    if seen.vm.metadata.deletion_timestamp.is_some() {
        return Printable::Terminating;
    }
    let vmi = seen.own_vmi();
    let status = vmi.and_then(|vmi| vmi.status.clone()).unwrap_or_default();
    let phase = vmi.map(|vmi| phase(vmi));
    let is_over = vmi.is_none_or(|vmi| is_final(vmi));
    let is_going = done.deleted || vmi.is_some_and(|vmi| vmi.metadata.deletion_timestamp.is_some());
    if !is_over && is_going {
        return Printable::Stopping;
    }
    if !is_over && is_migrating(&status) {
        return Printable::Migrating;
    }
    if phase == Some(Phase::Running) {
        let is_paused = conditions::is_true(&status.conditions, &VmiType::Paused);
        return if is_paused {
            Printable::Paused
        } else {
            Printable::Running
        };
    }
    if !is_over && let Some(problem) = problem(&status) {
        return problem;
    }
    let is_coming = done.created && is_over;
    let is_early = matches!(
        phase,
        Some(Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled)
    );
    let failed = plan
        .start_failure
        .as_ref()
        .and_then(|f| f.consecutive_fail_count)
        .unwrap_or(0);
    match () {
        () if is_coming || is_early => Printable::Starting,
        () if is_over && failed > 0 && plan.strategy.counts_failures() => {
            Printable::CrashLoopBackOff
        }
        () if is_over => Printable::Stopped,
        () => Printable::Unknown,
    }
}

fn is_migrating(status: &VirtualMachineInstanceStatus) -> bool {
    status.migration_state.as_ref().is_some_and(|state| {
        state.start_timestamp.is_some()
            && state.completed != Some(true)
            && state.failed != Some(true)
    })
}

/// What keeps a VMI from getting on.
fn problem(status: &VirtualMachineInstanceStatus) -> Option<Printable> {
    let all = &status.conditions;
    let failing = |kind| {
        let condition = conditions::find(all, &kind)?;
        (condition.status() == conditions::FALSE).then(|| condition.reason())
    };
    let synchronized = failing(VmiType::Synchronized);
    let scheduled = failing(VmiType::from("PodScheduled"));
    match (synchronized, scheduled) {
        (Some("FailedPvcNotFound"), _) => Some(Printable::ErrorPvcNotFound),
        (_, Some(reasons::vmi::UNSCHEDULABLE)) => Some(Printable::ErrorUnschedulable),
        (Some(reasons::vmi::ERR_IMAGE_PULL), _) => Some(Printable::ErrImagePull),
        (Some(reasons::vmi::IMAGE_PULL_BACK_OFF), _) => Some(Printable::ImagePullBackOff),
        _ => None,
    }
}
