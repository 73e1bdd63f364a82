//! Plans of the two ends for states of both VMIs.

use std::sync::Arc;

use jiff::Timestamp;
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use reconcile::Key;
use serde_json::{Value, json};

use super::{Other, Peer};
use crate::migration::attachment::Attachment;
use crate::migration::limits::Turn;
use crate::migration::observe::Observed;
use crate::migration::plan::plan;
use crate::migration::steps::{Plan, Step};
use crate::migration::view::Migration;
use crate::view::Guest;

const NOW: &str = "2026-11-21T12:01:00Z";

fn migration(uid: &str, end: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": uid, "namespace": "n", "uid": uid, "creationTimestamp": NOW,
                     "finalizers": ["kubevirt.io/migrationJobFinalize"]},
        "spec": {"vmiName": "v", end: {"migrationID": "id"}},
        "status": {"phase": phase, "phaseTransitionTimestamps": [
            {"phase": phase, "phaseTransitionTimestamp": NOW}]},
    })
}

/// The state of a copy from VMI `s` by migration `ms` to VMI `t` by migration `mt`.
fn state(own: &str, change: &Value) -> Value {
    let end = |uid: &str, migration: &str| {
        json!({"virtualMachineInstanceUID": uid, "migrationUID": migration,
               "domainName": uid, "domainNamespace": "n"})
    };
    let mut state = json!({
        "migrationUid": own, "sourceNode": "n1", "sourcePod": "ps", "targetPod": "pt",
        "targetNode": "n2", "sourceState": end("s", "ms"), "targetState": end("t", "mt"),
    });
    for (name, value) in change.as_object().unwrap() {
        state[name] = value.clone();
    }
    state
}

#[expect(clippy::needless_pass_by_value, reason = "written in place")]
fn vmi(uid: &str, phase: &str, state: Option<Value>) -> Value {
    let mut annotations = json!({});
    if uid == "t" {
        annotations["kubevirt.io/create-migration-target"] = "true".into();
    }
    json!({
        "metadata": {"name": uid, "namespace": "n", "uid": uid, "annotations": annotations},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": phase, "nodeName": "n1", "migrationState": state,
                   "phaseTransitionTimestamps": [
                       {"phase": phase, "phaseTransitionTimestamp": "2026-11-21T12:00:30Z"}]},
    })
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn next(own: [Value; 2], other: [Option<Value>; 2]) -> Plan {
    plan(&observe(own, other))
}

fn observe(own: [Value; 2], other: [Option<Value>; 2]) -> Observed {
    let [migration, vmi] = own;
    let [peer, other] = other;
    Observed {
        migration: parse::<Migration>(migration),
        vmi: Some(parse::<Guest>(vmi)),
        target: None,
        is_target_current: false,
        attachment: Attachment::NotNeeded,
        current_pod: None,
        rival: None,
        turn: Turn::Now,
        other: Some(Other {
            peer: peer.map_or(Peer::None, |peer| Peer::One(parse(peer))),
            vmi: other.map(parse),
            mismatch: None,
            addresses: Vec::new(),
            turn: Some(Turn::Now),
        }),
        newer: 0,
        now: NOW.parse::<Timestamp>().unwrap(),
    }
}

/// The next step of the end that receives.
fn received(phase: &str, vmi: Value, other: Value) -> (Phase, Option<Step>) {
    let own = [migration("mt", "receive", phase), vmi];
    let found = next(own, [Some(migration("ms", "sendTo", "")), Some(other)]);
    (found.phase, found.step)
}

/// The next step of the end that sends.
fn sent(phase: &str, vmi: Value, other: Value) -> (Phase, Option<Step>) {
    let own = [migration("ms", "sendTo", phase), vmi];
    let found = next(own, [Some(migration("mt", "receive", "")), Some(other)]);
    (found.phase, found.step)
}

#[test]
fn end_that_receives_is_paired_only_with_a_guest_that_runs() {
    let waits = || vmi("t", "WaitingForSync", None);
    let own = [migration("mt", "receive", ""), waits()];
    let alone = next(own, [None, None]);
    assert_eq!((alone.phase, alone.step), (Phase::WaitingForSync, None));
    assert!(alone.blocked.is_some());
    let starts = received("", waits(), vmi("s", "Scheduling", None));
    assert_eq!(starts, (Phase::WaitingForSync, None));
    let runs = received("", waits(), vmi("s", "Running", None));
    assert_eq!(runs, (Phase::Pending, Some(Step::Pair)));
    // It runs a guest of its own.
    let (phase, _) = received("", vmi("t", "Running", None), vmi("s", "Running", None));
    assert_eq!(phase, Phase::Failed);
}

#[test]
fn guest_is_handed_over_when_the_other_pod_is_ready() {
    let offer = |phase: &str, change: Value| vmi("t", phase, Some(state("mt", &change)));
    let runs = || vmi("s", "Running", None);
    let none = json!({"targetNode": null});
    let starting = sent("Synchronizing", runs(), offer("Scheduling", none));
    assert_eq!(starting, (Phase::Scheduling, None));
    let ready = sent("Scheduling", runs(), offer("Scheduled", json!({})));
    assert_eq!(ready, (Phase::Scheduled, Some(Step::HandOverElsewhere)));
    let other = json!({"sourceState": {"virtualMachineInstanceUID": "x", "migrationUID": "mx"}});
    let taken = sent("Synchronizing", runs(), offer("Scheduled", other));
    assert_eq!(taken, (Phase::Synchronizing, None));
    let over = json!({"completed": true, "failed": true});
    let withdrawn = sent("Synchronizing", runs(), offer("Scheduled", over));
    assert_eq!(withdrawn, (Phase::Synchronizing, None));
}

#[test]
fn each_end_learns_from_the_other_one() {
    let there = |change: Value| vmi("t", "Scheduled", Some(state("mt", &change)));
    let here = |change: Value| vmi("s", "Running", Some(state("ms", &change)));
    let step = Some(Step::Synchronize);
    let address = || json!({"targetNodeAddress": "10.0.0.2"});
    let found = sent("PreparingTarget", here(json!({})), there(address()));
    assert_eq!(found, (Phase::PreparingTarget, step));
    let begun = json!({"startTimestamp": NOW, "targetNodeAddress": "10.0.0.2"});
    let found = received("TargetReady", there(address()), here(begun.clone()));
    assert_eq!(found, (Phase::TargetReady, step));
    let mut over = begun.clone();
    over["completed"] = true.into();
    let found = received("Running", there(begun), here(over.clone()));
    assert_eq!(found, (Phase::Running, step));
    // It is marked as one that waits no more.
    let mut come = vmi("t", "Running", Some(state("mt", &over)));
    let found = received("Running", come.clone(), here(over.clone()));
    assert_eq!(found, (Phase::Running, step));
    come["metadata"]["annotations"] = json!({});
    let found = received("Running", come, here(over));
    assert_eq!(found, (Phase::Succeeded, None));
}

#[test]
fn guest_that_ended_unreported_is_settled_after_the_other_end() {
    let begun = || json!({"startTimestamp": NOW, "targetNodeAddress": "10.0.0.2"});
    let ended = || vmi("s", "Failed", Some(state("ms", &begun())));
    let there = |phase: &str| vmi("t", phase, Some(state("mt", &begun())));
    // The new node has a minute to report the guest.
    assert_eq!(
        received("Running", there("Scheduled"), ended()),
        (Phase::Running, None)
    );
    let mut long_ago = ended();
    long_ago["status"]["phaseTransitionTimestamps"][0]["phaseTransitionTimestamp"] =
        "2026-11-21T12:00:00Z".into();
    assert_eq!(
        received("Running", there("Scheduled"), long_ago),
        (Phase::Running, Some(Step::Withdraw))
    );
    // Its pod may still have the guest.
    assert_eq!(
        sent("Running", ended(), there("Scheduled")),
        (Phase::Running, None)
    );
    assert_eq!(
        sent("Running", ended(), there("Failed")),
        (Phase::Running, Some(Step::Synchronize))
    );
}

/// The other VMI has begun another migration before this end has learnt that it has the guest.
#[test]
fn guest_that_has_moved_on_is_not_started_again() {
    let ended = vmi(
        "s",
        "Failed",
        Some(state("ms", &json!({"startTimestamp": NOW}))),
    );
    let own = || [migration("ms", "sendTo", "Running"), ended.clone()];
    let moved_on = |phase: &str| {
        let mut moved_on = vmi(
            "t",
            phase,
            Some(json!({"migrationUid": "next", "sourceNode": "n2", "targetNode": "n3"})),
        );
        if phase == "Running" {
            moved_on["metadata"]["annotations"] = json!({});
        }
        moved_on
    };
    let found = next(own(), [None, Some(moved_on("Running"))]);
    assert_eq!(found.news, Some(json!({"completed": true})));
    // It waits for another guest: this one has not come.
    let found = next(own(), [None, Some(moved_on("Scheduled"))]);
    let news = found.news.unwrap();
    assert_eq!(news["failed"], true, "{news}");
}

#[test]
fn end_whose_other_end_has_given_up_fails_at_once() {
    for (uid, end, guest) in [
        ("mt", "receive", vmi("t", "WaitingForSync", None)),
        ("ms", "sendTo", vmi("s", "Running", None)),
    ] {
        let mut observed = observe([migration(uid, end, ""), guest], [None, None]);
        let other = Key::new("n", "other");
        observed.other.as_mut().unwrap().peer = Peer::GivenUp(other);
        let found = plan(&observed);
        assert_eq!(found.phase, Phase::Failed, "{end}");
        let message = found.failure.unwrap();
        assert!(message.contains("n/other"), "{message}");
    }
}

#[test]
fn evacuation_does_not_wait_for_the_other_end() {
    let mut leaves = vmi("s", "Running", None);
    leaves["status"]["evacuationNodeName"] = "n1".into();
    leaves["status"]["conditions"] = json!([{"type": "LiveMigratable", "status": "True"}]);
    let own = || [migration("ms", "sendTo", ""), leaves.clone()];
    let alone = next(own(), [None, None]);
    assert_eq!(alone.phase, Phase::Failed);
    // It leaves the node by this migration.
    let there = vmi("t", "Scheduled", Some(state("mt", &json!({}))));
    let paired = next(own(), [Some(migration("mt", "receive", "")), Some(there)]);
    assert_eq!(paired.step, Some(Step::HandOverElsewhere));
}

/// The guests were compared before the other one got its pod.
#[test]
fn guest_with_a_volume_attached_meanwhile_is_not_handed_over() {
    let mut runs = vmi("s", "Running", None);
    runs["spec"]["domain"]["devices"]["disks"] = json!([{"name": "more", "disk": {"bus": "scsi"}}]);
    runs["spec"]["volumes"] = json!([{"name": "more",
        "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}]);
    let there = vmi("t", "Scheduled", Some(state("mt", &json!({}))));
    let own = [migration("ms", "sendTo", "Scheduling"), runs];
    let found = next(own, [Some(migration("mt", "receive", "")), Some(there)]);
    assert_eq!((found.phase, found.step), (Phase::Failed, None));
    let message = found.failure.unwrap();
    assert!(message.contains("volume more"), "{message}");
}

#[test]
fn cancelled_end_withdraws_only_while_no_copy_can_begin() {
    let deleted = |end: &str, uid: &str| {
        let mut deleted = migration(uid, end, "PreparingTarget");
        deleted["metadata"]["deletionTimestamp"] = NOW.into();
        deleted
    };
    let check = |change: Value, expected: Option<Step>| {
        let there = vmi("t", "Scheduled", Some(state("mt", &change)));
        let here = vmi("s", "Running", Some(state("ms", &change)));
        let own = [deleted("receive", "mt"), there.clone()];
        let peer = || Some(migration("ms", "sendTo", "PreparingTarget"));
        let found = next(own, [peer(), Some(here.clone())]);
        assert_eq!(found.step, expected, "{change}");
        // The other end has its node stop the copy.
        let found = next(
            [migration("ms", "sendTo", "PreparingTarget"), here],
            [None, Some(there)],
        );
        assert_eq!(found.step, Some(Step::RequestAbort), "{change}");
    };
    check(json!({}), Some(Step::Withdraw));
    check(json!({"targetNodeAddress": "10.0.0.2"}), None);
}
