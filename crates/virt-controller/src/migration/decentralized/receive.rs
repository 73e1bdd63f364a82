//! Pure planning of the end that receives: its VMI waits, gets a pod, and then the guest.

use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::annotations;
use kubevirt_api::migration::VirtualMachineInstanceMigrationState as State;
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as GuestPhase;
use reasons::Reason;
use serde_json::{Value, json};

use super::{Other, Peer, given_up};
use crate::migration::limits::Turn;
use crate::migration::observe::Observed;
use crate::migration::steps::{PENDING_SECONDS, Plan, Step, time_left};
use crate::view::Guest;

/// How long the new node may take to report the guest, once the VMI that it has left is over without a report.
const ARRIVAL_SECONDS: i64 = 60;
/// Members of the state that the end which sends writes, and virt-handler of the old node.
const FROM_SOURCE: [&str; 8] = [
    "startTimestamp",
    "endTimestamp",
    "completed",
    "failed",
    "failureReason",
    "abortRequested",
    "abortStatus",
    "mode",
];

pub(in crate::migration) fn plan(observed: &Observed, vmi: &Guest, other: &Other) -> Plan {
    let migration = observed.migration.as_ref();
    match vmi.migration(migration.uid()) {
        Some(state) => paired(observed, vmi, state, other),
        None if migration.is_deleting() => Plan::fail("cancelled before it began"),
        None => unpaired(observed, vmi, other),
    }
}

fn unpaired(observed: &Observed, vmi: &Guest, other: &Other) -> Plan {
    if vmi.is_deleting() {
        return Plan::fail("the VirtualMachineInstance is being deleted");
    }
    if let Some(rival) = &observed.rival {
        return Plan::fail(format!(
            "migration {rival} of the same VirtualMachineInstance is in progress"
        ));
    }
    if !model::awaits_guest(&vmi.identity()) {
        return Plan::fail(
            "the VirtualMachineInstance does not wait for a guest: set spec.runStrategy of its VM to WaitAsReceiver \
             before it is made",
        );
    }
    let plan = Plan::to(Phase::WaitingForSync);
    let source = match (&other.peer, &other.vmi) {
        (Peer::None, _) => {
            return plan.blocked(
                Reason::AwaitsPeer,
                "there is no migration with sendTo and the same migrationID",
            );
        }
        (Peer::GivenUp(other), _) => return Plan::fail(given_up(other)),
        (Peer::Several, _) => {
            return plan.blocked(
                Reason::SeveralPeers,
                "more than one other migration has the same migrationID",
            );
        }
        (Peer::One(_), None) => {
            return plan.blocked(Reason::AwaitsPeer, "the guest to receive does not exist");
        }
        (Peer::One(_), Some(source)) => source,
    };
    if *vmi.phase() != GuestPhase::WaitingForSync || vmi.whole().is_none() {
        return plan;
    }
    if *source.phase() != GuestPhase::Running || source.is_deleting() {
        return plan.blocked(Reason::AwaitsPeer, "the guest to receive does not run");
    }
    if let Some(why) = &other.mismatch {
        return Plan::fail(why.clone());
    }
    match other.turn {
        Some(Turn::Now) => Plan::to(Phase::Pending).with(Step::Pair),
        Some(Turn::In(wait)) => plan.again_in(wait),
        None => plan,
    }
}

fn paired(observed: &Observed, vmi: &Guest, state: &State, other: &Other) -> Plan {
    let migration = observed.migration.as_ref();
    if state.failed == Some(true) {
        let message = state.failure_reason.clone();
        return Plan::fail(message.unwrap_or_else(|| "virt-handler gave no reason".to_owned()));
    }
    let has_come = model::has_come(&vmi.identity());
    let is_marked = vmi
        .annotation(annotations::CREATE_MIGRATION_TARGET)
        .is_some();
    let is_over = has_come && state.completed == Some(true) && !is_marked;
    if is_over && *vmi.phase() == GuestPhase::Running {
        return Plan::to(Phase::Succeeded);
    }
    let phase = match (&state.start_timestamp, &state.target_node_address) {
        (Some(_), _) => Phase::Running,
        (None, Some(_)) => Phase::TargetReady,
        (None, None) if state.target_node.is_some() => Phase::PreparingTarget,
        (None, None) => match vmi.phase() {
            GuestPhase::Scheduled => Phase::Scheduled,
            GuestPhase::Scheduling => Phase::Scheduling,
            _ => Phase::Pending,
        },
    };
    let plan = Plan::to(phase);
    let sent = other.vmi.as_deref();
    let sent_state = sent.and_then(|source| source.status.migration.as_deref());
    let copy = model::copy_id(state);
    let sent_state = sent_state.filter(|sent| copy.is_some() && model::copy_id(sent) == copy);
    if let Some(patch) = sent_state.and_then(|sent| news(state, sent)) {
        return plan.synchronize(patch);
    }
    if has_come && is_marked {
        // It is a VMI like any other from now on.
        return plan.synchronize(json!({"completed": true}));
    }
    if has_come {
        return plan;
    }
    // Until its address is published no copy can begin, so this end may still withdraw.
    let may_withdraw = state.target_node_address.is_none() && state.start_timestamp.is_none();
    if may_withdraw && let Some(why) = reason_to_withdraw(observed, vmi, sent) {
        return plan.withdraw(why);
    }
    let is_unreported = sent_state.is_none_or(|sent| sent.completed != Some(true));
    if is_unreported && sent.is_none_or(Guest::is_final) && !may_withdraw {
        let since = sent.map_or_else(|| migration.since(), ended_at);
        return match time_left(observed.now, since, ARRIVAL_SECONDS) {
            Some(left) => plan.again_in(left),
            None => plan.withdraw("the guest ended while it was copied, and has not come"),
        };
    }
    if state.target_node.is_none() && *vmi.phase() == GuestPhase::Scheduled {
        return plan.with(Step::AcceptNode);
    }
    match withdrawal_due(observed) {
        Some(left) if may_withdraw => plan.again_in(left),
        _ => plan,
    }
}

fn reason_to_withdraw(observed: &Observed, vmi: &Guest, sent: Option<&Guest>) -> Option<String> {
    let migration = observed.migration.as_ref();
    if migration.is_deleting() {
        return Some("the migration was cancelled".to_owned());
    }
    if vmi.is_deleting() {
        return Some("the VirtualMachineInstance is being deleted".to_owned());
    }
    if sent.is_none_or(|source| *source.phase() != GuestPhase::Running || source.is_deleting()) {
        return Some("the guest to receive has ended".to_owned());
    }
    let sends = observed.other.as_ref().map(|other| &other.peer);
    if !matches!(sends, Some(Peer::One(_))) {
        return Some("the migration with sendTo has ended".to_owned());
    }
    withdrawal_due(observed)
        .is_none()
        .then(|| "the pod was not ready for the guest in time".to_owned())
}

/// How long the pod may still take.
fn withdrawal_due(observed: &Observed) -> Option<Duration> {
    let migration = observed.migration.as_ref();
    let written = migration.annotation(annotations::MIGRATION_PENDING_POD_TIMEOUT_SECONDS);
    let limit = written.and_then(|text| text.parse().ok());
    let limit = limit.unwrap_or(PENDING_SECONDS);
    let mut changes = migration.status.phase_transition_timestamps.iter();
    let paired = changes.rfind(|one| one.phase == Some(Phase::Pending));
    let since = paired.and_then(|one| one.phase_transition_timestamp.as_ref());
    time_left(observed.now, since.map(|at| at.0), limit)
}

fn ended_at(source: &Guest) -> Option<Timestamp> {
    let last = source.status.changes.last()?;
    Some(last.phase_transition_timestamp.as_ref()?.0)
}

/// What this end does not know yet.
fn news(own: &State, sent: &State) -> Option<Value> {
    let (own, sent) = (json!(own), json!(sent));
    let mut patch = json!({});
    for name in FROM_SOURCE {
        if !sent[name].is_null() && own[name] != sent[name] {
            patch[name] = sent[name].clone();
        }
    }
    let is_empty = patch.as_object().is_none_or(serde_json::Map::is_empty);
    // The end that virt-handler of the new node has reported stays.
    let is_settled = own["completed"] == true;
    (!is_empty && !is_settled).then_some(patch)
}
