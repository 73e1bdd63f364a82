//! Plans and statuses for states of a replica set.

use std::sync::Arc;

use jiff::Timestamp;
use reasons::Reason;
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::{BURST, Plan, Step, plan};
use super::view::ReplicaSet;
use super::{selects, status};
use crate::view::Guest;

const NOW: &str = "2026-11-21T12:00:00Z";

fn set(replicas: Option<i32>) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "set-uid",
                     "resourceVersion": "3"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}},
        },
    })
}

/// Age in seconds, phase and readiness of a member.
fn member(name: &str, age: i64, phase: &str, ready: &str) -> Arc<Guest> {
    let now: Timestamp = NOW.parse().unwrap();
    let created = now - jiff::SignedDuration::from_secs(age);
    let vmi = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
                     "labels": {"app": "web"}, "creationTimestamp": created.to_string()},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    });
    Arc::new(serde_json::from_value(vmi).unwrap())
}

fn running(count: usize) -> Vec<Arc<Guest>> {
    let name = |n| format!("web-{n:03}");
    (0..count)
        .map(|n| member(&name(n), 60, "Running", "True"))
        .collect()
}

fn deleting(vmi: &Arc<Guest>) -> Arc<Guest> {
    let mut vmi = vmi.as_ref().clone();
    vmi.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        NOW.parse().unwrap(),
    ));
    Arc::new(vmi)
}

fn observe(set: Value, members: Vec<Arc<Guest>>) -> Observed {
    Observed {
        set: Arc::new(serde_json::from_value::<ReplicaSet>(set).unwrap()),
        members,
        unmatched: Vec::new(),
        orphans: Vec::new(),
        awaited: 0,
        now: NOW.parse().unwrap(),
    }
}

fn describe(plan: &Plan) -> String {
    let steps = plan.steps.iter().map(|step| match step {
        Step::Adopt(vmi) => format!("adopt {}", vmi.metadata.name.as_deref().unwrap()),
        Step::Release(vmi) => format!("release {}", vmi.metadata.name.as_deref().unwrap()),
        Step::Delete(vmi) => format!("delete {}", vmi.metadata.name.as_deref().unwrap()),
        Step::Create(count) => format!("create {count}"),
    });
    steps.collect::<Vec<_>>().join(", ")
}

#[test]
fn number_of_members_is_kept() {
    let over = |phase| member("over", 60, phase, "False");
    let mut terminating = member("terminating", 60, "Running", "False")
        .as_ref()
        .clone();
    terminating.status.conditions[0].reason = Some("PodTerminating".to_owned());
    let leaving = deleting(&member("leaving", 60, "Running", "True"));
    let cases = [
        (None, vec![], "create 1"),
        (Some(3), running(1), "create 2"),
        (Some(2), running(2), ""),
        (Some(0), running(2), "delete web-000, delete web-001"),
        (Some(1), vec![over("Failed")], "delete over, create 1"),
        (Some(1), vec![over("Succeeded")], "delete over, create 1"),
        (Some(1), vec![leaving], "create 1"),
        (
            Some(1),
            vec![Arc::new(terminating)],
            "delete terminating, create 1",
        ),
    ];
    for (replicas, members, expected) in cases {
        let text = format!("{replicas:?} {members:?}");
        assert_eq!(
            describe(&plan(&observe(set(replicas), members))),
            expected,
            "{text}"
        );
    }
}

#[test]
fn members_are_deleted_in_order() {
    let members = vec![
        member("old-ready", 90, "Running", "True"),
        member("young-ready", 10, "Running", "True"),
        member("running", 90, "Running", "False"),
        member("pending", 90, "Pending", "False"),
    ];
    let plan = plan(&observe(set(Some(1)), members));
    assert_eq!(
        describe(&plan),
        "delete pending, delete running, delete young-ready"
    );
    assert_eq!((plan.replicas, plan.ready), (4, 2));
}

#[test]
fn one_reconcile_is_limited_to_a_burst() {
    assert_eq!(
        describe(&plan(&observe(set(Some(1000)), vec![]))),
        format!("create {BURST}")
    );
    let steps = plan(&observe(set(Some(0)), running(300))).steps;
    assert_eq!(steps.len(), BURST);
}

#[test]
fn awaited_members_count() {
    let mut observed = observe(set(Some(3)), running(1));
    observed.awaited = 2;
    let plan = plan(&observed);
    assert_eq!(describe(&plan), "");
    assert!(plan.requeue_in.is_some());
}

#[test]
fn paused_set_creates_and_deletes_nothing() {
    let mut paused = set(Some(3));
    paused["spec"]["paused"] = true.into();
    let over = member("over", 60, "Failed", "False");
    let observed = observe(paused, vec![over]);
    let plan = plan(&observed);
    assert_eq!(describe(&plan), "");
    let status = status::render(&observed, &plan, None);
    assert_eq!(status.conditions[0].type_.as_str(), "ReplicaPaused");
    assert_eq!(status.conditions[0].reason.as_deref(), Some("Paused"));
}

#[test]
fn deleted_set_is_left_to_the_garbage_collector() {
    let mut going = set(Some(3));
    going["metadata"]["deletionTimestamp"] = NOW.into();
    assert_eq!(describe(&plan(&observe(going, running(1)))), "");
}

#[test]
fn members_are_adopted_and_released_by_their_labels() {
    let mut observed = observe(set(Some(2)), running(1));
    observed.orphans = vec![member("orphan", 1, "Running", "True")];
    observed.unmatched = vec![member("unmatched", 1, "Running", "True")];
    assert_eq!(
        describe(&plan(&observed)),
        "release unmatched, adopt orphan"
    );

    let set: ReplicaSet = serde_json::from_value(set(None)).unwrap();
    let vmi = member("a", 1, "Running", "True");
    assert!(selects(&set, &vmi));
    let mut other = vmi.as_ref().clone();
    other.metadata.labels = None;
    assert!(!selects(&set, &other));
    let mut all = set;
    all.spec.selector = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector::default();
    assert!(!selects(&all, &vmi));
}

#[test]
fn status_is_written_once() {
    let observed = observe(set(Some(2)), running(2));
    let wanted = plan(&observed);
    let failure = status::Failure {
        reason: Reason::FailedCreate,
        message: "quota".to_owned(),
    };
    let rendered = status::render(&observed, &wanted, Some(&failure));
    insta::assert_json_snapshot!(rendered);
    let key = reconcile::Key::new("default", "web");
    assert!(status::fragment(&observed.set, &key, &rendered).is_some());
    let mut written = set(Some(2));
    written["status"] = json!(rendered);
    let observed = observe(written, running(2));
    let again = status::render(&observed, &wanted, Some(&failure));
    assert!(status::fragment(&observed.set, &key, &again).is_none());
    let repaired = status::render(&observed, &wanted, None);
    assert!(repaired.conditions.is_empty());
}
