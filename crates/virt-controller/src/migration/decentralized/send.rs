//! Pure planning of the end that sends: its guest is copied to the other VMI's pod, and ends here.

use kubevirt_api::annotations;
use kubevirt_api::migration::VirtualMachineInstanceMigrationState as State;
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as GuestPhase;
use reasons::Reason;
use serde_json::{Value, json};

use super::match_up::immovable;
use super::{Other, Peer, given_up};
use crate::hotplug::leaving;
use crate::migration::evacuation::has_to_leave;
use crate::migration::observe::Observed;
use crate::migration::steps::{PENDING_SECONDS, Plan, Step, time_left};
use crate::view::Guest;

/// Members of the state that virt-handler of the new node writes.
const FROM_TARGET: [&str; 5] = [
    "targetNodeAddress",
    "targetDirectMigrationNodePorts",
    "migrationNetworkType",
    "targetNodeDomainDetected",
    "targetNodeDomainReadyTimestamp",
];

pub(in crate::migration) fn plan(observed: &Observed, vmi: &Guest, other: &Other) -> Plan {
    let migration = observed.migration.as_ref();
    match vmi.migration(migration.uid()) {
        Some(state) => handed_over(observed, vmi, state, other),
        None if vmi.is_final() => Plan::fail("the guest has ended"),
        None if migration.is_deleting() => Plan::fail("cancelled before it began"),
        None => before_hand_over(observed, vmi, other),
    }
}

fn before_hand_over(observed: &Observed, vmi: &Guest, other: &Other) -> Plan {
    let migration = observed.migration.as_ref();
    if vmi.is_deleting() {
        return Plan::fail("the VirtualMachineInstance is being deleted");
    }
    if let Some(rival) = &observed.rival {
        return Plan::fail(format!(
            "migration {rival} of the same guest is in progress"
        ));
    }
    if vmi.status.is_migrating {
        return Plan::fail("virt-handler has not ended another migration of the same guest yet");
    }
    if let Some(why) = immovable(vmi) {
        return Plan::fail(why);
    }
    if let Peer::GivenUp(other) = &other.peer {
        return Plan::fail(given_up(other));
    }
    if vmi.volumes_arrived() || *vmi.phase() != GuestPhase::Running {
        return Plan::to(Phase::Synchronizing);
    }
    if let Some(target) = other.vmi.as_deref()
        && matches!(other.peer, Peer::One(_))
        && let Some(offer) = offer(observed, vmi, target)
    {
        // The two guests were compared before the other one got its pod.
        if let Some(plug) = vmi.plugs.first() {
            return Plan::fail(format!(
                "volume {} was attached while the guest runs: detach it first",
                plug.volume
            ));
        }
        let is_ready = offer.target_node.is_some() && *target.phase() == GuestPhase::Scheduled;
        return if is_ready && leaving(vmi).is_none() {
            Plan::to(Phase::Scheduled).with(Step::HandOverElsewhere)
        } else {
            Plan::to(Phase::Scheduling)
        };
    }
    if has_to_leave(vmi) {
        return Plan::fail(
            "the guest has to leave its node first: create both migrations again when it has",
        );
    }
    let written = migration.annotation(annotations::MIGRATION_PENDING_POD_TIMEOUT_SECONDS);
    let limit = written.and_then(|text| text.parse().ok());
    let limit = limit.unwrap_or(PENDING_SECONDS);
    // Other migrations of the guest wait for this one.
    let Some(left) = time_left(observed.now, migration.created(), limit) else {
        return Plan::fail(format!(
            "no migration with receive and the same migrationID was ready for the guest within {limit} s"
        ));
    };
    let plan = Plan::to(Phase::Synchronizing).again_in(left);
    match &other.peer {
        Peer::None => plan.blocked(
            Reason::AwaitsPeer,
            "there is no migration with receive and the same migrationID",
        ),
        Peer::Several => plan.blocked(
            Reason::SeveralPeers,
            "more than one other migration has the same migrationID",
        ),
        Peer::One(_) | Peer::GivenUp(_) => plan.blocked(
            Reason::AwaitsPeer,
            "the VirtualMachineInstance that is to get the guest has no pod yet",
        ),
    }
}

/// The state of the VMI that waits, if it waits for this guest by this migration.
pub(super) fn offer<'a>(observed: &Observed, vmi: &Guest, target: &'a Guest) -> Option<&'a State> {
    let state = target.status.migration.as_deref()?;
    let source = state.source_state.as_ref()?;
    let is_this = source.migration_uid.as_deref() == Some(observed.migration.uid())
        && source.virtual_machine_instance_uid == vmi.metadata.uid
        && model::awaits_guest(&target.identity());
    (is_this && state.failed != Some(true) && state.completed != Some(true)).then_some(state)
}

fn handed_over(observed: &Observed, vmi: &Guest, state: &State, other: &Other) -> Plan {
    let migration = observed.migration.as_ref();
    if state.failed == Some(true) {
        let message = state.failure_reason.clone();
        return Plan::fail(message.unwrap_or_else(|| "virt-handler gave no reason".to_owned()));
    }
    if state.completed == Some(true) {
        return Plan::to(Phase::Succeeded);
    }
    let phase = match (&state.start_timestamp, &state.target_node_address) {
        (Some(_), _) => Phase::Running,
        (None, Some(_)) => Phase::TargetReady,
        (None, None) => Phase::PreparingTarget,
    };
    let plan = Plan::to(phase.clone());
    let target = other.vmi.as_deref();
    let target_state = target.and_then(|target| target.status.migration.as_deref());
    let copy = model::copy_id(state);
    let target_state = target_state.filter(|one| copy.is_some() && model::copy_id(one) == copy);
    if let Some(patch) = target_state.and_then(|one| news(state, one)) {
        return plan.synchronize(patch);
    }
    if vmi.is_final() {
        return settle(plan, state, target, target_state);
    }
    if state.abort_requested == Some(true) || state.target_node_domain_ready_timestamp.is_some() {
        return plan;
    }
    let receives = matches!(&other.peer, Peer::One(_));
    let is_lost = target.is_none_or(|target| target.is_final() || target.is_deleting());
    let is_withdrawn = target_state.is_none_or(|one| one.failed == Some(true));
    if migration.is_deleting() || vmi.is_deleting() || is_lost || is_withdrawn || !receives {
        return plan.with(Step::RequestAbort);
    }
    if phase == Phase::Running || migration.phase() != phase {
        return plan;
    }
    match time_left(observed.now, migration.since(), PENDING_SECONDS) {
        Some(left) => plan.again_in(left),
        None => plan.with(Step::RequestAbort),
    }
}

/// The VMI has ended, and virt-handler has not reported where its guest is.
fn settle(plan: Plan, state: &State, target: Option<&Guest>, there: Option<&State>) -> Plan {
    let has_come = state.target_node_domain_ready_timestamp.is_some();
    if has_come {
        return plan.synchronize(json!({"completed": true}));
    }
    let has_failed = target.is_some_and(|target| *target.phase() == GuestPhase::Failed);
    let has_other_state = target.is_some() && there.is_none();
    let awaits_guest = target.is_some_and(|target| model::awaits_guest(&target.identity()));
    // It has begun another migration since, of the guest that it has got.
    if has_other_state && !awaits_guest && !has_failed {
        return plan.synchronize(json!({"completed": true}));
    }
    // A VMI in that phase has no pod any more.
    if target.is_none() || has_failed || has_other_state {
        let message = "the guest ended while it was copied";
        return plan.synchronize(json!({
            "completed": true, "failed": true, "failureReason": message,
        }));
    }
    plan
}

/// What this end does not know yet.
fn news(own: &State, target: &State) -> Option<Value> {
    let (own, target) = (json!(own), json!(target));
    if target["failed"] == true {
        return None;
    }
    let mut patch = json!({});
    for name in FROM_TARGET {
        if own[name].is_null() && !target[name].is_null() {
            patch[name] = target[name].clone();
        }
    }
    let is_empty = patch.as_object().is_none_or(serde_json::Map::is_empty);
    (!is_empty).then_some(patch)
}
