//! Table tests of the plans for snapshots and contents.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::content::{self, Data, Owner};
use super::files::Record;
use super::plan::{self, NewContent, Observed, Step, Usage};
use super::*;
use crate::storage::volume::PROVISIONED_BY;

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

struct Case {
    snapshot: Value,
    content: Option<Value>,
    classes: Vec<Value>,
    claim: Option<Value>,
    volume: Option<Value>,
    usage: Usage,
}

fn class(name: &str, driver: &str) -> Value {
    json!({"metadata": {"name": name}, "driver": driver, "deletionPolicy": "Delete"})
}

fn content(uid: &Value, status: &Value) -> Value {
    json!({
        "metadata": {"name": "snapcontent-u", "finalizers": [CONTENT_PROTECTION]},
        "spec": {
            "driver": PROVISIONER, "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
            "volumeSnapshotRef": {"namespace": "n", "name": "s", "uid": uid},
        },
        "status": status,
    })
}

/// A protected snapshot of a bound claim of this host.
fn case() -> Case {
    Case {
        snapshot: json!({
            "metadata": {
                "namespace": "n", "name": "s", "uid": "u", "finalizers": [SNAPSHOT_PROTECTION],
            },
            "spec": {"source": {"persistentVolumeClaimName": "c"}},
        }),
        content: None,
        classes: vec![class("local", PROVISIONER)],
        claim: Some(json!({
            "metadata": {"namespace": "n", "name": "c"},
            "spec": {"volumeName": "v"}, "status": {"phase": "Bound"},
        })),
        volume: Some(json!({
            "metadata": {"name": "v", "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {"volumeMode": "Block"},
        })),
        usage: Usage::Unused,
    }
}

fn step(case: &Case) -> Option<Step> {
    let content = case.content.as_ref().map(parse);
    let classes: Vec<_> = case
        .classes
        .iter()
        .map(|one| Arc::new(parse(one)))
        .collect();
    plan::next(&Observed {
        snapshot: &parse(&case.snapshot),
        content: content.as_ref(),
        classes: &classes,
        claim: case.claim.as_ref().map(parse).as_ref(),
        volume: case.volume.as_ref().map(parse).as_ref(),
        usage: case.usage,
        now: Timestamp::UNIX_EPOCH,
    })
}

fn error(case: &Case) -> String {
    match step(case) {
        Some(Step::SetStatus(status)) => {
            assert_eq!(status.ready_to_use, Some(false));
            status.error.unwrap().message.unwrap()
        }
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn snapshot_gets_a_content_and_its_state() {
    let mut case = case();
    case.snapshot["metadata"]["finalizers"] = json!([]);
    assert_eq!(step(&case), Some(Step::Protect));
    case.snapshot["metadata"]["finalizers"] = json!([SNAPSHOT_PROTECTION]);
    let new = NewContent {
        class: "local".into(),
        deletion_policy: "Delete".into(),
        volume: "v".into(),
        mode: "Block",
    };
    assert_eq!(step(&case), Some(Step::CreateContent(new)));
    let ready = json!({"readyToUse": true, "creationTime": 1_500_000_000, "restoreSize": 4096});
    case.content = Some(content(&json!("u"), &ready));
    let Some(Step::SetStatus(status)) = step(&case) else {
        panic!("no status");
    };
    let status = serde_json::to_value(status).unwrap();
    let expected = json!({
        "boundVolumeSnapshotContentName": "snapcontent-u", "creationTime": "1970-01-01T00:00:01Z",
        "readyToUse": true, "restoreSize": "4096",
    });
    assert_eq!(status, expected);
    case.snapshot["status"] = status;
    assert_eq!(step(&case), None);
    // Its data would be of another moment.
    case.content = None;
    assert!(error(&case).contains("is gone"));
}

#[test]
fn problems_of_a_snapshot_are_shown() {
    let no_class = Case {
        classes: vec![],
        ..case()
    };
    assert!(error(&no_class).contains("no VolumeSnapshotClass"));
    let no_claim = Case {
        claim: None,
        volume: None,
        ..case()
    };
    assert!(error(&no_claim).contains("claim \"c\" not found"));
    let mut unbound = case();
    unbound.claim.as_mut().unwrap()["status"]["phase"] = json!("Pending");
    assert!(error(&unbound).contains("has no volume yet"));
    let mut named = case();
    named.snapshot["spec"]["volumeSnapshotClassName"] = json!("other");
    assert!(error(&named).contains("volumesnapshotclass \"other\" not found"));
    let mut taken = case();
    taken.content = Some(content(&json!("another"), &Value::Null));
    assert!(error(&taken).contains("belongs to another snapshot"));
    let mut known = case();
    known.claim = None;
    let message = "claim \"c\" not found";
    known.snapshot["status"] = json!({"readyToUse": false, "error": {"message": message}});
    assert_eq!(step(&known), None);
}

#[test]
fn snapshots_of_other_drivers_are_left_alone() {
    let mut case = case();
    case.classes.push(class("csi", "example.com"));
    case.snapshot["spec"]["volumeSnapshotClassName"] = json!("csi");
    case.snapshot["metadata"]["finalizers"] = json!([]);
    assert_eq!(step(&case), None);
    let mut foreign = self::case();
    foreign.classes = vec![];
    foreign.volume.as_mut().unwrap()["metadata"]["annotations"] = json!({});
    assert_eq!(step(&foreign), None);
}

#[test]
fn deleted_snapshot_waits_for_claims_that_want_it_and_for_its_content() {
    let mut case = case();
    case.snapshot["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    assert_eq!(step(&case), Some(Step::Unprotect));
    case.usage = Usage::Wanted;
    assert_eq!(step(&case), None);
    case.usage = Usage::Unused;
    case.content = Some(content(&json!("u"), &Value::Null));
    assert_eq!(step(&case), Some(Step::DeleteContent));
    let mut deleting = content(&json!("u"), &Value::Null);
    deleting["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    case.content = Some(deleting);
    assert_eq!(step(&case), None);
    let mut kept = content(&json!("u"), &Value::Null);
    kept["spec"]["deletionPolicy"] = json!("Retain");
    case.content = Some(kept);
    assert_eq!(step(&case), Some(Step::Unprotect));
}

fn content_step(content: &Value, owner: Owner, data: &Data) -> Option<content::Step> {
    content::next(&parse(content), owner, data, Timestamp::UNIX_EPOCH)
}

fn complete() -> Data {
    let record = json!({"bytes": 4096, "mode": "Block", "created": 5, "volume": "v"});
    Data::Complete(parse::<Record>(&record))
}

#[test]
fn content_is_copied_once() {
    let new = content(&json!("u"), &Value::Null);
    let take = Some(content::Step::Take("v".into()));
    assert_eq!(content_step(&new, Owner::There, &Data::Missing), take);
    for owner in [Owner::Unknown, Owner::Deleting] {
        assert_eq!(content_step(&new, owner, &Data::Missing), None);
    }
    let Some(content::Step::SetStatus(status)) = content_step(&new, Owner::There, &complete())
    else {
        panic!("no status");
    };
    assert_eq!(status.snapshot_handle.as_deref(), Some("snapshot-u"));
    assert_eq!(
        (status.ready_to_use, status.creation_time),
        (Some(true), Some(5))
    );
    let done = content(&json!("u"), &json!(status));
    assert_eq!(content_step(&done, Owner::There, &complete()), None);
    let Some(content::Step::SetStatus(lost)) = content_step(&done, Owner::There, &Data::Missing)
    else {
        panic!("no error");
    };
    assert_eq!(lost.ready_to_use, Some(false));
    let lost = content(&json!("u"), &json!(lost));
    assert_eq!(content_step(&lost, Owner::There, &Data::Missing), None);
}

#[test]
fn deletion_policy_decides_about_the_data() {
    use content::Step;
    for (policy, deleting, owner, expected) in [
        ("Delete", false, Owner::Gone, Some(Step::Delete)),
        ("Delete", true, Owner::There, None),
        ("Delete", true, Owner::Deleting, Some(Step::Erase)),
        ("Delete", true, Owner::Gone, Some(Step::Erase)),
        ("Retain", true, Owner::Gone, Some(Step::Unprotect)),
    ] {
        let mut one = content(
            &json!("u"),
            &json!({"snapshotHandle": "snapshot-u",
            "creationTime": 5, "readyToUse": true, "restoreSize": 4096}),
        );
        one["spec"]["deletionPolicy"] = json!(policy);
        if deleting {
            one["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        }
        assert_eq!(
            content_step(&one, owner, &complete()),
            expected,
            "{policy} {owner:?}"
        );
    }
    let mut adopted = content(&Value::Null, &Value::Null);
    adopted["spec"]["source"] = json!({"snapshotHandle": "snapshot-old"});
    let Some(Step::SetStatus(status)) = content_step(&adopted, Owner::Unknown, &Data::Missing)
    else {
        panic!("no error");
    };
    assert!(status.error.is_some());
}
