//! Plans and statuses for states of a pool.

mod healing;
mod templates;
mod updates;

use std::collections::BTreeMap;
use std::sync::Arc;

use error_chain::error_chain;
use jiff::{SignedDuration, Timestamp};
use reasons::Reason;
use reconcile::WriteError;
use serde_json::{Value, json};

use super::act::remember;
use super::observe::{Member, Observed};
use super::plan::{BURST, Plan, Step, plan};
use super::view::{Disks, Pool, Revision};
use super::{PoolError, selects, status, template, update};
use crate::view::Guest;
use crate::vm::Vm;

const NOW: &str = "2026-11-21T12:00:00Z";
const FINALIZER: &str = "pool.kubevirt.io/finalizer";
const REVISION: &str = "kubevirt.io/vm-pool-revision-name";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn vm_template(memory: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "runStrategy": "Always",
            "template": {"spec": {"domain": {"memory": {"guest": memory}}}},
        },
    })
}

/// A pool of generation 2, whose present revision is web-2.
fn pool(spec: Value) -> Value {
    let mut all = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "virtualMachineTemplate": vm_template("1Gi"),
    });
    let Value::Object(given) = spec else {
        panic!("the members of a spec");
    };
    for (name, value) in given {
        all[name] = value;
    }
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "pool-uid", "generation": 2,
                     "resourceVersion": "3", "finalizers": [FINALIZER]},
        "spec": all,
    })
}

fn parsed(pool: Value) -> Pool {
    serde_json::from_value(pool).unwrap()
}

/// A VM of the present revision without a guest, as JSON.
fn vm(ordinal: u32) -> Value {
    let created = now() - SignedDuration::from_secs(i64::from(ordinal) * 60);
    json!({
        "metadata": {"name": format!("web-{ordinal}"), "namespace": "default",
                     "uid": format!("uid-{ordinal}"), "creationTimestamp": created.to_string(),
                     "labels": {"app": "web", REVISION: "web-2"}, "finalizers": [FINALIZER]},
        "spec": {"template": {"metadata": {"labels": {REVISION: "web-2"}}}},
        "status": {"printableStatus": "Starting"},
    })
}

/// A VMI of that revision.
fn guest(ordinal: u32, revision: &str, ready: &str) -> Guest {
    let guest = json!({
        "metadata": {"name": format!("web-{ordinal}"), "namespace": "default",
                     "uid": format!("guest-{ordinal}"), "labels": {REVISION: revision}},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    });
    serde_json::from_value(guest).unwrap()
}

fn member_of(vm: Value) -> Member {
    let vm: Vm = serde_json::from_value(vm).unwrap();
    let ordinal = template::ordinal("web", vm.metadata.name.as_deref().unwrap()).unwrap();
    Member {
        ordinal,
        guest: None,
        is_leaving: vm.metadata.deletion_timestamp.is_some(),
        is_restarted: false,
        vm: Arc::new(vm),
    }
}

fn members(ordinals: impl IntoIterator<Item = u32>) -> Vec<Member> {
    ordinals.into_iter().map(|one| member_of(vm(one))).collect()
}

fn deleting(mut vm: Value) -> Value {
    vm["metadata"]["deletionTimestamp"] = NOW.into();
    vm
}

fn observe(pool: Value, members: Vec<Member>) -> Observed {
    Observed {
        taken: members.iter().map(|member| member.ordinal).collect(),
        pool: Arc::new(parsed(pool)),
        members,
        strangers: Vec::new(),
        orphans: Vec::new(),
        awaited: 0,
        revisions: BTreeMap::new(),
        now: now(),
    }
}

fn revision(name: &str, template: &Value) -> (String, Arc<Revision>) {
    let revision = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "data": {"virtualMachineTemplate": template},
    });
    (
        name.to_owned(),
        Arc::new(serde_json::from_value(revision).unwrap()),
    )
}

fn describe(plan: &Plan) -> String {
    let named = |vm: &Vm| vm.metadata.name.clone().unwrap();
    let guest = |guest: &Guest| guest.metadata.name.clone().unwrap();
    let steps = plan.steps.iter().map(|step| match step {
        Step::AddFinalizer => "add finalizer".to_owned(),
        Step::Release(vm) => format!("release {}", named(vm)),
        Step::LetGo(vm, Disks::Kept) => format!("let go {} without disks", named(vm)),
        Step::LetGo(vm, Disks::Deleted) => format!("let go {}", named(vm)),
        Step::Delete(vm) => format!("delete {}", named(vm)),
        Step::KeepRevision => "keep revision".to_owned(),
        Step::Create(ordinal) => format!("create {ordinal}"),
        Step::Update(member) => format!("update {}", named(&member.vm)),
        Step::Restart(member) => format!("restart {}", named(&member.vm)),
        Step::Relabel(vmi, revision) => format!("relabel {} {revision}", guest(vmi)),
        Step::Recreate(vm) => format!("recreate {}", named(vm)),
        Step::Prune(revision) => format!("prune {}", revision.metadata.name.clone().unwrap()),
        Step::RemoveFinalizer => "remove finalizer".to_owned(),
    });
    steps.collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(observed: &Observed, expected: &str) {
    assert_eq!(describe(&plan(observed)), expected, "{observed:#?}");
}

#[test]
fn vms_get_the_lowest_free_numbers() {
    let cases = [
        (json!({}), members([]), "keep revision, create 0"),
        (
            json!({"replicas": 2}),
            members([]),
            "keep revision, create 0, create 1",
        ),
        (
            json!({"replicas": 3}),
            members([1]),
            "keep revision, create 0, create 2",
        ),
        (json!({"replicas": 2}), members([0, 5]), ""),
        (json!({"replicas": 0}), members([]), ""),
    ];
    for (spec, members, expected) in cases {
        check(&observe(pool(spec), members), expected);
    }
}

#[test]
fn names_of_others_and_of_awaited_vms_are_taken() {
    let mut observed = observe(pool(json!({"replicas": 3})), members([0]));
    observed.taken.extend([1, 2]);
    observed.awaited = 1;
    check(&observed, "keep revision, create 3");
    assert!(plan(&observed).requeue_in.is_some());
}

#[test]
fn deleted_vm_is_replaced_when_it_is_gone() {
    let leaving = member_of(deleting(vm(0)));
    let observed = observe(pool(json!({"replicas": 1})), vec![leaving]);
    check(&observed, "let go web-0");
    // It is not replaced by the deletion of another one either.
    let mut members = members([1, 2]);
    members.push(member_of(deleting(vm(0))));
    let observed = observe(pool(json!({"replicas": 2})), members);
    check(&observed, "let go web-0");
}

#[test]
fn surplus_vms_are_deleted_in_the_order_of_the_policy() {
    let by = |policy: Value| json!({"replicas": 1, "scaleInStrategy": {"proactive": {"selectionPolicy": policy}}});
    let cases = [
        (
            by(json!({"sortPolicy": "AscendingOrder"})),
            "delete web-2, delete web-9",
        ),
        (
            by(json!({"sortPolicy": "DescendingOrder"})),
            "delete web-10, delete web-9",
        ),
        // The age grows with the number.
        (
            by(json!({"sortPolicy": "Newest"})),
            "delete web-2, delete web-9",
        ),
        (
            by(json!({"sortPolicy": "Oldest"})),
            "delete web-10, delete web-9",
        ),
        (
            json!({"replicas": 1, "scaleInStrategy": {"unmanaged": {}}}),
            "",
        ),
        (
            json!({"replicas": 1, "scaleInStrategy": {"opportunistic": {}}}),
            "",
        ),
    ];
    for (spec, expected) in cases {
        check(&observe(pool(spec), members([10, 2, 9])), expected);
    }
    for spec in [json!({"replicas": 1}), by(json!({"sortPolicy": "Random"}))] {
        let plan = plan(&observe(pool(spec), members([10, 2, 9])));
        assert_eq!(plan.steps.len(), 2, "{plan:?}");
        assert!(plan.steps.iter().all(|one| matches!(one, Step::Delete(_))));
    }
}

#[test]
fn random_order_differs_from_spec_to_spec() {
    let first = |generation: u32, version: u32| {
        let mut pool = pool(json!({"replicas": 19}));
        pool["metadata"]["generation"] = generation.into();
        pool["metadata"]["resourceVersion"] = version.to_string().into();
        describe(&plan(&observe(pool, members(0..20))))
    };
    let all = (0..20).map(|generation| first(generation, 1));
    let all: std::collections::BTreeSet<String> = all.collect();
    assert!(all.len() > 1, "{all:?}");
    // A write of the status is no reason to delete another VM.
    assert!((2..20).all(|version| first(1, version) == first(1, 1)));
}

#[test]
fn selectors_restrict_which_vms_are_deleted() {
    let spec = |selectors: Value| {
        let policy = json!({"sortPolicy": "AscendingOrder", "selectors": selectors});
        json!({"replicas": 0, "scaleInStrategy": {"proactive": {"selectionPolicy": policy}}})
    };
    let mut labelled = vm(1);
    labelled["metadata"]["labels"]["retire"] = "yes".into();
    let mut in_template = vm(2);
    in_template["spec"]["template"]["metadata"]["labels"]["retire"] = "yes".into();
    let mut on_node = vm(3);
    on_node["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a", "size": "8"});
    let members = || {
        let all = [
            vm(0),
            labelled.clone(),
            in_template.clone(),
            on_node.clone(),
        ];
        all.map(member_of).to_vec()
    };
    let by_node = |operator: &str, values: Value| {
        let one = json!({"key": "size", "operator": operator, "values": values});
        spec(json!({"nodeSelectorRequirementMatcher": [one]}))
    };
    let retire = json!({"labelSelector": {"matchLabels": {"retire": "yes"}}});
    let cases = [
        (spec(retire), "delete web-1, delete web-2"),
        (by_node("In", json!(["8"])), "delete web-3"),
        (
            by_node("NotIn", json!(["8"])),
            "delete web-0, delete web-1, delete web-2",
        ),
        (by_node("Exists", json!([])), "delete web-3"),
        (
            by_node("DoesNotExist", json!([])),
            "delete web-0, delete web-1, delete web-2",
        ),
        (by_node("Gt", json!(["7"])), "delete web-3"),
        (by_node("Gt", json!(["8"])), ""),
        (by_node("Lt", json!(["9"])), "delete web-3"),
        (by_node("Near", json!(["9"])), ""),
        (
            spec(json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "?"}]}})),
            "",
        ),
    ];
    for (spec, expected) in cases {
        check(&observe(pool(spec), members()), expected);
    }
}

#[test]
fn disks_are_kept_if_the_pool_says_so_and_nobody_asks_for_their_deletion() {
    let strategies = [
        (json!({}), "let go web-0"),
        (json!({"proactive": {}}), "let go web-0"),
        (
            json!({"proactive": {"statePreservation": "Disabled"}}),
            "let go web-0",
        ),
        (
            json!({"proactive": {"statePreservation": "Offline"}}),
            "let go web-0 without disks",
        ),
        (
            json!({"proactive": {"statePreservation": "Online"}}),
            "let go web-0 without disks",
        ),
        (
            json!({"opportunistic": {"statePreservation": "Offline"}}),
            "let go web-0 without disks",
        ),
    ];
    for (strategy, expected) in strategies {
        let spec = json!({"scaleInStrategy": strategy, "paused": true});
        let leaving = member_of(deleting(vm(0)));
        check(&observe(pool(spec), vec![leaving]), expected);
    }
    // The guest still writes to them.
    let kept =
        json!({"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}, "paused": true});
    for (spec, expected) in [(kept, ""), (json!({"paused": true}), "let go web-0")] {
        let leaving = Member {
            guest: Some(Arc::new(guest(0, "web-2", "True"))),
            ..member_of(deleting(vm(0)))
        };
        check(&observe(pool(spec), vec![leaving]), expected);
    }
    let mut foreground = deleting(vm(0));
    foreground["metadata"]["finalizers"] = json!([FINALIZER, "foregroundDeletion"]);
    let spec = json!({"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}});
    check(
        &observe(pool(spec), vec![member_of(foreground)]),
        "let go web-0",
    );
}

#[test]
fn one_reconcile_is_limited_to_a_burst() {
    let created = plan(&observe(pool(json!({"replicas": 1000})), vec![])).steps;
    assert_eq!(created.len(), BURST + 1);
    let deleted = plan(&observe(pool(json!({"replicas": 0})), members(0..300))).steps;
    assert_eq!(deleted.len(), BURST);
    let failing = (0..300).map(|ordinal| {
        let mut vm = vm(ordinal);
        vm["status"]["startFailure"] = json!({"consecutiveFailCount": 3});
        member_of(vm)
    });
    let spec = json!({"replicas": 300, "autohealing": {}});
    let healed = plan(&observe(pool(spec), failing.collect())).steps;
    assert_eq!(healed.len(), BURST);
}

#[test]
fn paused_pool_only_lets_go() {
    let mut members = members([0]);
    members.push(member_of(deleting(vm(1))));
    let mut observed = observe(pool(json!({"replicas": 5, "paused": true})), members);
    observed.strangers = vec![Arc::new(serde_json::from_value(vm(7)).unwrap())];
    check(&observed, "let go web-1, release web-7");
    let plan = plan(&observed);
    let status = status::render(&observed, &plan, None);
    assert_eq!(status.conditions[0].type_.as_str(), "ReplicaPaused");
    assert_eq!(
        status.conditions[0].reason.as_deref(),
        Some("SuccessfulPaused")
    );
    assert_eq!(
        status.conditions[0].message.as_deref(),
        Some("Pool controller is paused")
    );
}

#[test]
fn pool_is_held_until_its_vms_are_free() {
    let mut new = pool(json!({"replicas": 1}));
    new["metadata"]["finalizers"] = json!([]);
    check(&observe(new, members([0])), "add finalizer");

    let mut going = pool(json!({"replicas": 5}));
    going["metadata"]["deletionTimestamp"] = NOW.into();
    let mut free = vm(1);
    free["metadata"]["finalizers"] = json!([]);
    let mut observed = observe(going, vec![member_of(vm(0)), member_of(free)]);
    observed.strangers = vec![Arc::new(serde_json::from_value(vm(7)).unwrap())];
    observed.orphans = vec![Arc::new(serde_json::from_value(vm(8)).unwrap())];
    observed.revisions = BTreeMap::from([revision("web-1", &vm_template("1Gi"))]);
    check(
        &observed,
        "release web-7, release web-8, let go web-0, prune web-1, remove finalizer",
    );
    // A VM that the cache does not show yet has to be let go as well.
    observed.awaited = 1;
    check(
        &observed,
        "release web-7, release web-8, let go web-0, prune web-1",
    );
    assert!(plan(&observed).requeue_in.is_some());
}

#[test]
fn selector_has_to_match_and_may_not_be_empty() {
    let vm: Vm = serde_json::from_value(vm(0)).unwrap();
    let one = parsed(pool(json!({})));
    assert!(selects(&one, &vm));
    let other = parsed(pool(json!({"selector": {"matchLabels": {"app": "other"}}})));
    assert!(!selects(&other, &vm));
    assert!(!selects(&parsed(pool(json!({"selector": {}}))), &vm));
}

#[test]
fn pool_whose_vms_would_not_be_its_own_does_nothing() {
    let mut unlabelled = vm_template("1Gi");
    unlabelled["metadata"]["labels"] = json!({"app": "other"});
    for spec in [
        json!({"replicas": 3, "virtualMachineTemplate": unlabelled}),
        json!({"replicas": 3, "selector": {}}),
        json!({"replicas": 3, "selector": {"matchExpressions": [{"key": "a", "operator": "?"}]}}),
    ] {
        let mut observed = observe(pool(spec), vec![]);
        observed.strangers = vec![Arc::new(serde_json::from_value(vm(0)).unwrap())];
        check(&observed, "");
        assert!(plan(&observed).problem.is_some());
    }
}

#[test]
fn condition_shows_the_first_error_that_lasts() {
    let what = || "default/web-0".to_owned();
    let early = || PoolError::Update(WriteError::Conflict { what: what() });
    let lasting = |message: &str| {
        let message = message.to_owned();
        PoolError::Update(WriteError::Refused {
            what: what(),
            message,
        })
    };
    let taken = || PoolError::RevisionTaken {
        name: "web-2".to_owned(),
    };
    let cases = [
        (vec![early(), lasting("one"), early()], "one"),
        (vec![lasting("one"), lasting("two")], "one"),
        (vec![early(), early()], "has changed"),
        (vec![early(), taken()], "controllerrevision web-2"),
    ];
    for (errors, expected) in cases {
        let step = Step::KeepRevision;
        let mut failed = None;
        for error in errors {
            remember(&mut failed, error, &step);
        }
        let (error, _) = failed.unwrap();
        let text = error_chain(&error);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn status_is_written_once() {
    let mut ready = vm(0);
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let all = || vec![member_of(ready.clone()), member_of(vm(1))];
    let observed = observe(pool(json!({"replicas": 2})), all());
    let wanted = plan(&observed);
    let failure = status::Failure {
        reason: Reason::FailedScaleOut,
        message: "error during scale out: quota".to_owned(),
    };
    let rendered = status::render(&observed, &wanted, Some(&failure));
    let expected = json!({
        "replicas": 2,
        "readyReplicas": 1,
        "conditions": [{
            "type": "ReplicaFailure", "status": "True", "lastTransitionTime": NOW,
            "reason": "FailedScaleOut", "message": "error during scale out: quota",
        }],
        "labelSelector": "app=web",
    });
    assert_eq!(json!(rendered), expected);
    let mut written = pool(json!({"replicas": 2}));
    written["status"] = json!(rendered);
    let observed = observe(written, all());
    let again = status::render(&observed, &wanted, Some(&failure));
    assert_eq!(again, rendered);
    let repaired = status::render(&observed, &wanted, None);
    assert!(repaired.conditions.is_empty());
}
