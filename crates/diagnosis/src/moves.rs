//! Guests that run and could not be moved to another pod.

use kubevirt_api::{
    annotations,
    conditions::{self, Condition as _},
    labels,
    migration::MigrationAbortStatus,
    vmi_status::VirtualMachineInstanceConditionType as Type,
};
use model::{GuestSize, MigrationEnd};
use reasons::Reason;

use crate::{Finding, Observed};

/// The condition of a VMI whose guest is copied.
const PROGRESS: &str = "MigrationProgress";

fn cancel(observed: &Observed) -> String {
    observed.virtctl(&format!("migrate-cancel {}", observed.name))
}

/// An update has brought another launcher, and the guest cannot move to it.
pub(crate) fn outdated(observed: &Observed) -> Vec<Finding> {
    let label = labels::OUTDATED_LAUNCHER_IMAGE;
    let all = observed
        .own_vmi()
        .and_then(|vmi| vmi.metadata.labels.as_ref());
    let is_outdated = all.is_some_and(|all| all.contains_key(label));
    let blocked = observed.problem(&Type::LiveMigratable);
    let Some((reason, message)) = blocked.filter(|_| is_outdated && !observed.is_final()) else {
        return Vec::new();
    };
    vec![
        Finding::new(format!(
            "The guest runs in a launcher of an earlier version, and cannot migrate to the new one: {message}. Restart \
             it when it suits you"
        ))
        .reason(reason)
        .evidence(
            observed.vmi_object(),
            format!("metadata.labels[{label}]"),
            "is set",
        )
        .evidence(
            observed.vmi_object(),
            "status.conditions[LiveMigratable]",
            format!("{reason}: {message}"),
        )
        .next(observed.virtctl(&format!("restart {}", observed.name))),
    ]
}

/// No node takes the pod to which the guest is to move.
pub(crate) fn no_node(observed: &Observed) -> Vec<Finding> {
    let unscheduled = observed.pods_of_moves().filter_map(|pod| {
        let name = pod.metadata.name.as_deref()?;
        let all = pod.status.as_ref()?.conditions.as_ref()?;
        let condition = all.iter().find(|one| one.type_ == "PodScheduled")?;
        let is_it = condition.reason.as_deref() == Some(Reason::Unschedulable.as_str());
        is_it.then(|| (name, condition.message.as_deref().unwrap_or_default()))
    });
    let found = unscheduled.map(|(name, message)| {
        Finding::new(format!(
            "The guest runs and is to move, but no node takes its new pod: {message}"
        ))
        .because(Reason::Unschedulable)
        .evidence(
            format!("pod/{name}"),
            "status.conditions[PodScheduled]",
            format!("{}: {message}", Reason::Unschedulable),
        )
        .next(observed.kubectl(&format!("describe pod {name}")))
    });
    found.collect()
}

/// The guest changes its memory faster than it is copied.
pub(crate) fn not_converging(observed: &Observed) -> Vec<Finding> {
    let shown = observed.condition(&Type::from(PROGRESS));
    let shown = shown.filter(|one| one.status() == conditions::FALSE);
    let found = shown.map(|one| {
        Finding::new(
            "The guest is copied to another pod, but changes its memory faster than it is copied; a \
             MigrationPolicy with more bandwidth or auto-converge helps",
        )
        .evidence(
            observed.vmi_object(),
            format!("status.conditions[{PROGRESS}]"),
            one.message(),
        )
        .next(cancel(observed))
    });
    found.into_iter().collect()
}

/// A change of the VM takes effect in another pod, and no migration is under way.
pub(crate) fn change_waits(observed: &Observed) -> Vec<Finding> {
    let status = observed.own_vmi().and_then(|vmi| vmi.status.as_ref());
    let state = status.and_then(|status| status.migration_state.as_ref());
    let is_moving =
        state.is_some_and(|state| state.completed != Some(true) && state.failed != Some(true));
    if is_moving || observed.is_final() {
        return Vec::new();
    }
    // The VM needs a restart, and says so.
    let mobility = observed.condition(&Type::LiveMigratable);
    if mobility.is_some_and(|one| one.status() == conditions::FALSE) {
        return Vec::new();
    }
    let changes = [
        (Type::HotVCPUChange, "processors"),
        (Type::HotMemoryChange, "memory"),
        (Type::VolumesChange, "claims for its volumes"),
    ];
    let pending = changes.into_iter().filter(|(kind, _)| {
        let shown = observed.condition(kind);
        shown.is_some_and(|one| one.status() == conditions::TRUE)
    });
    let found = pending.map(|(kind, what)| {
        let (how, next) = way_of_change(observed, kind == Type::VolumesChange);
        Finding::new(format!("The VM has other {what} now. {how}"))
            .evidence(
                observed.vmi_object(),
                format!("status.conditions[{}]", kind.as_str()),
                conditions::TRUE,
            )
            .next(next)
    });
    found.collect()
}

/// How the guest gets the change, and the next command.
fn way_of_change(observed: &Observed, is_of_volumes: bool) -> (String, String) {
    if has_room(observed) && !is_of_volumes {
        let how =
            "The pod of the guest has room for it: virt-handler of the node makes the change there";
        let next = observed.kubectl(&format!("describe vmi {}", observed.name));
        return (how.to_owned(), next);
    }
    let status = observed.own_vmi().and_then(|vmi| vmi.status.as_ref());
    let leaves = status.and_then(|status| status.evacuation_node_name.as_deref());
    if let Some(node) = leaves.filter(|node| !node.is_empty()) {
        let how = format!("The guest gets it in another pod, but has to leave node {node} first");
        let next = observed.kubectl("get virtualmachineinstancemigrations");
        return (how, next);
    }
    let next = observed.virtctl(&format!("migrate {} --watch", observed.name));
    let how = match last_failure(observed) {
        Some((place, why)) => format!(
            "The guest gets it in another pod, but its last migration, to {place}, has failed: {why}. It moves \
             again after a while if spec.workloadUpdateStrategy of the KubeVirt object has the method \
             LiveMigrate, or by request"
        ),
        None => "The guest gets it in another pod: it moves there by itself if spec.workloadUpdateStrategy of \
                 the KubeVirt object has the method LiveMigrate, or by request"
            .to_owned(),
    };
    (how, next)
}

/// Whether the guest gets what it lacks in the pod that it has.
fn has_room(observed: &Observed) -> bool {
    let all = observed
        .pod()
        .and_then(|pod| pod.metadata.annotations.as_ref());
    let made_for = all.and_then(|all| GuestSize::parse(all.get(annotations::GUEST_SIZE)?));
    let wanted = observed.own_vmi().map(GuestSize::wanted);
    made_for
        .zip(wanted)
        .is_some_and(|(made_for, wanted)| made_for.covers(wanted))
}

/// To which place the last migration failed, and why.
fn last_failure(observed: &Observed) -> Option<(&str, &str)> {
    let vmi = observed.own_vmi()?;
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    // Its guest was to come from another VM, and has a cause of its own.
    if model::migration_end(vmi) == Some(MigrationEnd::Target) {
        return None;
    }
    let was_cancelled = state.abort_status == Some(MigrationAbortStatus::Succeeded);
    if state.failed != Some(true) || was_cancelled || observed.is_final() {
        return None;
    }
    let place = if model::is_within_node(state) {
        "another pod of its node"
    } else {
        state.target_node.as_deref().unwrap_or("another node")
    };
    Some((place, state.failure_reason.as_deref().unwrap_or_default()))
}

/// The last migration has failed.
pub(crate) fn failed(observed: &Observed) -> Vec<Finding> {
    let found = last_failure(observed).map(|(place, why)| {
        Finding::new(format!(
            "The guest runs where it was: its last migration, to {place}, has failed: {why}"
        ))
        .because(Reason::FailedMigration)
        .evidence(
            observed.vmi_object(),
            "status.migrationState.failureReason",
            why,
        )
        .next(observed.virtctl(&format!("migrate {} --watch", observed.name)))
    });
    found.into_iter().collect()
}
