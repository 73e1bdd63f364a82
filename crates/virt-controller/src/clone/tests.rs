//! The table of plans, and the patches of clones.

use std::sync::Arc;

use kubevirt_api::annotations;
use kubevirt_api::clone::VirtualMachineClone;
use reasons::Reason;
use serde_json::{Value, json};

use super::observe::{Observed, phase, waits_for_vm};
use super::plan::{Progress, Step, plan};
use super::{copy, status};
use crate::restore::{Target, new_vm};

const CREATED: &str = "2026-11-21T12:00:00Z";

fn clone(spec: &Value, status: &Value) -> VirtualMachineClone {
    let mut clone = json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "12345678"},
        "spec": {
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"},
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "b"},
        },
        "status": status,
    });
    for (field, value) in spec.as_object().unwrap() {
        clone["spec"][field] = value.clone();
    }
    serde_json::from_value(clone).unwrap()
}

fn of_snapshot() -> Value {
    json!({"source": {
        "apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "s",
    }})
}

fn vm() -> Value {
    json!({
        "metadata": {
            "name": "a",
            "labels": {"app": "wiki", "example.com/owner": "me"},
            "annotations": {annotations::LAST_RESTORE_UID: "old", "note": "x"},
        },
        "spec": {"runStrategy": "Always", "template": {
            "metadata": {"labels": {"app": "wiki"}, "annotations": {"a/b~c": "1"}},
            "spec": {
                "domain": {
                    "firmware": {"uuid": "u", "serial": "s", "bootloader": {"bios": {}}},
                    "devices": {"interfaces": [
                        {"name": "one", "macAddress": "02:00:00:00:00:01"},
                        {"name": "two"},
                        {"name": "three", "macAddress": "02:00:00:00:00:03"},
                    ]},
                },
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "root", "containerDisk": {"image": "i"}},
                ],
            },
        }},
    })
}

fn target(object: Value, status: &Value) -> Target {
    let status: Option<_> = serde_json::from_value(status.clone()).unwrap();
    Target {
        object,
        uid: "vm".to_owned(),
        status: status.unwrap_or_default(),
    }
}

fn source(status: &Value) -> Target {
    target(vm(), status)
}

fn copyable() -> Value {
    json!({"volumeSnapshotStatuses": [
        {"name": "data", "enabled": true}, {"name": "root", "enabled": false},
    ]})
}

fn observed(spec: &Value, status: &Value) -> Observed {
    Observed {
        clone: Arc::new(clone(spec, status)),
        now: CREATED.parse().unwrap(),
        ..Observed::default()
    }
}

fn with_snapshot(spec: &Value, status: &Value) -> Observed {
    let mut observed = observed(spec, &Value::Null);
    let snapshot = json!({"metadata": {"name": "s", "uid": "s"}, "spec": {}, "status": status});
    observed.snapshot = serde_json::from_value(snapshot).unwrap();
    observed
}

fn ready(spec: &Value) -> Observed {
    let mut observed = with_snapshot(spec, &json!({"readyToUse": true, "phase": "Succeeded"}));
    observed.copied = vm();
    let backup =
        json!([{"volumeName": "data", "persistentVolumeClaim": {"metadata": {"name": "data"}}}]);
    observed.backups = serde_json::from_value(backup).unwrap();
    observed
}

fn with_restore(phase: &str, status: &Value) -> Observed {
    let mut observed = with_snapshot(&json!({}), &json!({"readyToUse": true}));
    let names = json!({"phase": phase, "snapshotName": "s", "restoreName": "r", "targetName": "b"});
    observed.clone = Arc::new(clone(&json!({}), &names));
    let restore = json!({
        "metadata": {"name": "r", "uid": "r"},
        "spec": {"target": {"kind": "VirtualMachine", "name": "b"}, "virtualMachineSnapshotName": "s"},
        "status": status,
    });
    observed.restore = serde_json::from_value(restore).unwrap();
    observed
}

/// The reason of a clone that is pending or has failed.
fn problem(observed: &Observed) -> (&'static str, Reason) {
    match plan(observed).progress {
        Progress::Pending((reason, _)) => ("pending", reason),
        Progress::Failed((reason, _)) => ("failed", reason),
        other => panic!("no problem: {other:?}"),
    }
}

#[test]
fn clone_of_a_vm_begins_when_its_volumes_can_be_copied() {
    let mut one = observed(&json!({}), &Value::Null);
    let missing = ("pending", Reason::SourceDoesNotExist);
    assert_eq!(problem(&one), missing);
    assert!(waits_for_vm(&one.clone, "a"));
    one.source = Some(source(&Value::Null));
    let unknown = ("pending", Reason::VMVolumeSnapshotsInvalid);
    assert_eq!(problem(&one), unknown);
    let refused = json!({"volumeSnapshotStatuses": [{"name": "data", "reason": "no class"}]});
    one.source = Some(source(&refused));
    assert_eq!(problem(&one), unknown);
    one.source = Some(source(&copyable()));
    assert_eq!(plan(&one).step, Some(Step::CreateSnapshot));
    one.target = Some(source(&Value::Null));
    assert_eq!(problem(&one), ("failed", Reason::CloneTargetExists));
    one.target = None;
    let mut deleted = vm();
    deleted["metadata"]["deletionTimestamp"] = CREATED.into();
    one.source = Some(target(deleted, &copyable()));
    assert_eq!(problem(&one), missing);
    let mut with_tpm = vm();
    let domain = &mut with_tpm["spec"]["template"]["spec"]["domain"];
    domain["devices"]["tpm"] = json!({"persistent": true});
    one.source = Some(target(with_tpm.clone(), &copyable()));
    let keeps_state = ("failed", Reason::SourceVMWithBackendStorageInvalid);
    assert_eq!(problem(&one), keeps_state);
    // A preference asks for it: nothing is copied.
    one.source = Some(source(&copyable()));
    one.expanded = Some(with_tpm.clone());
    assert_eq!(problem(&one), keeps_state);
    // The preference was changed before the snapshot.
    let mut changed = ready(&json!({}));
    changed.expanded = Some(with_tpm);
    assert_eq!(problem(&changed), keeps_state);
    let mut filtered = observed(&json!({"labelFilters": ["a("]}), &Value::Null);
    filtered.source = Some(source(&copyable()));
    assert_eq!(problem(&filtered), ("failed", Reason::CloneNotPossible));
    // Its snapshot was there already.
    let gone = observed(&json!({}), &json!({"snapshotName": "s"}));
    assert_eq!(problem(&gone), ("failed", Reason::SnapshotDeleted));
    let no_snapshot = observed(&of_snapshot(), &Value::Null);
    assert_eq!(problem(&no_snapshot), missing);
}

#[test]
fn restore_follows_a_ready_snapshot() {
    let busy = json!({"conditions": [{
        "type": "Ready", "status": "False", "reason": "SnapshotSourceMissing",
        "message": "no claim. Create the object that the message names, or delete the snapshot.",
    }]});
    let waits = plan(&with_snapshot(&json!({}), &busy));
    let cause = (Reason::SnapshotSourceMissing, "no claim.".to_owned());
    assert_eq!(waits.progress, Progress::Snapshotting(Some(cause)));
    let over = json!({"phase": "Failed", "conditions": [{
        "type": "Failure", "status": "True", "reason": "SnapshotDeadlineExceeded", "message": "late",
    }]});
    let over = with_snapshot(&json!({}), &over);
    assert_eq!(problem(&over), ("failed", Reason::SnapshotDeadlineExceeded));
    let Some(Step::CreateRestore(restore)) = plan(&ready(&of_snapshot())).step else {
        panic!("no restore");
    };
    assert_eq!(
        restore.metadata.name.as_deref(),
        Some("tmp-restore-12345678")
    );
    assert_eq!(restore.spec.virtual_machine_snapshot_name, "s");
    assert_eq!(restore.spec.target.name, "b");
    let mut taken = ready(&of_snapshot());
    taken.target = Some(source(&Value::Null));
    assert_eq!(problem(&taken), ("failed", Reason::CloneTargetExists));
    let mut lost = ready(&json!({}));
    lost.copied = Value::Null;
    assert_eq!(problem(&lost), ("failed", Reason::SnapshotContentInvalid));
    let mut partial = ready(&json!({}));
    partial.backups = Vec::new();
    assert_eq!(
        problem(&partial),
        ("failed", Reason::SnapshotContentInvalid)
    );
    for wrong in [
        json!({"patches": [r#"{"op": "remove", "path": "/spec/none"}"#]}),
        json!({"newMacAddresses": {"four": "02:00:00:00:00:04"}}),
        json!({"template": {"annotationFilters": ["["]}}),
    ] {
        let refused = problem(&ready(&wrong));
        assert_eq!(refused, ("failed", Reason::CloneNotPossible), "{wrong}");
    }
}

#[test]
fn progress_follows_the_restore() {
    let state = |status: Value| plan(&with_restore("RestoreInProgress", &status)).progress;
    assert_eq!(state(Value::Null), Progress::Restoring(None));
    let failure = json!({"conditions": [{
        "type": "Failure", "status": "True", "reason": "RestoreNotPossible", "message": "taken",
    }]});
    let cause = (Reason::RestoreNotPossible, "taken".to_owned());
    assert_eq!(state(failure), Progress::Failed(cause));
    let mut created = with_restore("RestoreInProgress", &Value::Null);
    let mark = json!({"metadata": {"annotations": {annotations::LAST_RESTORE_UID: "r-r"}}});
    created.target = Some(target(mark, &Value::Null));
    assert_eq!(plan(&created).progress, Progress::CreatingTarget(None));
    created.snapshot = None;
    assert_eq!(problem(&created), ("failed", Reason::SnapshotDeleted));
    let complete = json!({"complete": true});
    assert_eq!(state(complete), Progress::Succeeded(Vec::new()));
}

#[test]
fn name_of_the_target_is_known_without_the_restore() {
    let mut done = with_restore("CreatingTargetVM", &json!({"complete": true}));
    let names = json!({"phase": "CreatingTargetVM", "snapshotName": "s", "restoreName": "r"});
    done.clone = Arc::new(clone(&json!({}), &names));
    let deleted = serde_json::from_value(json!(CREATED)).unwrap();
    done.restore.as_mut().unwrap().metadata.deletion_timestamp = deleted;
    let ended = status::render(&done, &plan(&done).progress);
    assert_eq!(ended.phase.unwrap().as_str(), "Succeeded");
    assert_eq!(ended.target_name.as_deref(), Some("b"));
    assert_eq!(ended.restore_name, None);
}

#[test]
fn helpers_are_kept_until_the_claims_have_their_data() {
    let complete = json!({"complete": true});
    let mut done = with_restore("Succeeded", &complete);
    done.target = Some(source(&Value::Null));
    done.unbound = vec!["claim".to_owned()];
    assert_eq!(plan(&done).step, None);
    let kept = status::render(&done, &plan(&done).progress);
    assert_eq!(kept.restore_name.as_deref(), Some("tmp-restore-12345678"));
    assert_eq!(kept.conditions[0].reason.as_deref(), Some("Ready"));
    assert!(
        kept.conditions[0]
            .message
            .as_deref()
            .unwrap()
            .contains("claim")
    );
    done.unbound.clear();
    assert_eq!(plan(&done).step, Some(Step::DeleteRestore));
    done.restore = None;
    assert_eq!(plan(&done).step, Some(Step::DeleteSnapshot));
    // That of a user stays.
    let names = json!({"phase": "Succeeded", "targetName": "b"});
    done.clone = Arc::new(clone(&of_snapshot(), &names));
    assert_eq!(plan(&done).step, None);
    done.snapshot = None;
    let ended = status::render(&done, &plan(&done).progress);
    assert_eq!((ended.restore_name, ended.snapshot_name), (None, None));
    done.target = None;
    assert_eq!(plan(&done).step, Some(Step::DeleteClone));
    // A clone that has failed needs none.
    let failed = with_restore("Failed", &Value::Null);
    assert_eq!(plan(&failed).step, Some(Step::DeleteRestore));
    let mut deleted = clone(&json!({}), &Value::Null);
    deleted.metadata.deletion_timestamp = serde_json::from_value(json!(CREATED)).unwrap();
    let mut one = observed(&json!({}), &Value::Null);
    one.clone = Arc::new(deleted);
    assert_eq!(
        (plan(&one).step, plan(&one).progress),
        (None, Progress::Ended)
    );
    assert_eq!(phase(&one.clone).as_str(), "");
}

/// The VM that is made of [`vm`].
fn copied(spec: &Value) -> Value {
    let restore = copy::restore(&clone(spec, &Value::Null), "s", &vm()).unwrap();
    new_vm(&restore, &vm(), &[]).unwrap()
}

#[test]
fn copy_has_an_identity_of_its_own() {
    let vm = copied(&json!({}));
    let domain = &vm["spec"]["template"]["spec"]["domain"];
    assert_eq!(domain["firmware"], json!({"bootloader": {"bios": {}}}));
    let interfaces = json!([{"name": "one"}, {"name": "two"}, {"name": "three"}]);
    assert_eq!(domain["devices"]["interfaces"], interfaces);
    assert_eq!(vm["spec"]["runStrategy"], "Halted");
    let given = copied(&json!({
        "newSMBiosSerial": "new",
        "newMacAddresses": {"one": "", "two": "02:00:00:00:00:0a", "three": "02:00:00:00:00:0b"},
        "patches": [r#"{"op": "replace", "path": "/spec/runStrategy", "value": "Always"}"#],
    }));
    let domain = &given["spec"]["template"]["spec"]["domain"];
    assert_eq!(domain["firmware"]["serial"], "new");
    let interfaces = json!([
        {"name": "one"},
        {"name": "two", "macAddress": "02:00:00:00:00:0a"},
        {"name": "three", "macAddress": "02:00:00:00:00:0b"},
    ]);
    assert_eq!(domain["devices"]["interfaces"], interfaces);
    assert_eq!(given["spec"]["runStrategy"], "Always");
}

#[test]
fn filters_drop_labels_and_annotations() {
    let all = copied(&json!({}));
    assert_eq!(all["metadata"]["labels"], vm()["metadata"]["labels"]);
    let some = copied(&json!({
        "labelFilters": ["*", "!owner"],
        "annotationFilters": ["none"],
        "template": {"labelFilters": ["!app"], "annotationFilters": ["nothing"]},
    }));
    assert_eq!(some["metadata"]["labels"], json!({"app": "wiki"}));
    let mark = json!({annotations::LAST_RESTORE_UID: "tmp-restore-12345678-"});
    assert_eq!(some["metadata"]["annotations"], mark);
    let template = json!({"labels": {}, "annotations": {}});
    assert_eq!(some["spec"]["template"]["metadata"], template);
}

#[test]
fn target_has_a_name_in_any_case() {
    let mut nameless = clone(&json!({}), &Value::Null);
    assert_eq!(copy::target_name(&nameless, "a"), "b");
    nameless.spec.target = None;
    assert_eq!(copy::target_name(&nameless, "a"), "a-clone-12345");
    assert_eq!(copy::target_name(&nameless, &"a".repeat(300)).len(), 253);
}
