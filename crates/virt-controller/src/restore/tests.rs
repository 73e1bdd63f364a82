//! The table of plans, names of claims, and restored VMs.

use std::sync::Arc;

use jiff::Timestamp;
use kubevirt_api::restore::VirtualMachineRestore;
use kubevirt_api::{annotations, finalizers, labels};
use reasons::Reason;
use reconcile::WriteError;
use serde_json::{Value, json};

use super::act::shown;
use super::observe::{Disk, Observed, Target};
use super::plan::{Plan, Progress, Step, plan};
use super::target::{Replaced, difference, restored};
use super::{RestoreError, claims, status};
use crate::subresources::SubresourceError;

const CREATED: &str = "2026-11-21T12:00:00Z";
const MARK: &str = "r-u";

fn restore(spec: &Value, status: &Value) -> VirtualMachineRestore {
    let mut restore = json!({
        "metadata": {
            "name": "r", "namespace": "n", "uid": "u", "creationTimestamp": CREATED,
            "finalizers": [finalizers::RESTORE],
        },
        "spec": {
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"},
            "virtualMachineSnapshotName": "s",
        },
        "status": status,
    });
    for (field, value) in spec.as_object().unwrap() {
        restore["spec"][field] = value.clone();
    }
    serde_json::from_value(restore).unwrap()
}

fn source() -> Value {
    json!({
        "metadata": {"name": "a", "labels": {"app": "wiki"}},
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [{"metadata": {"name": "old-dv"}}],
            "template": {"spec": {"volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "dv", "dataVolume": {"name": "old-dv"}},
                {"name": "dump", "memoryDump": {"claimName": "dump"}},
                {"name": "root", "containerDisk": {"image": "i"}},
            ]}},
        },
    })
}

fn target(status: &Value, annotations: &Value) -> Target {
    Target {
        object: json!({
            "metadata": {"name": "a", "annotations": annotations},
            "spec": {
                "runStrategy": "Halted",
                "template": {"spec": {"volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                ]}},
            },
        }),
        uid: "vm".to_owned(),
        status: serde_json::from_value(status.clone()).unwrap(),
    }
}

fn disk(restore: &VirtualMachineRestore, claim: &Value) -> Disk {
    let backup = json!({
        "volumeName": "data", "volumeSnapshotName": "x",
        "persistentVolumeClaim": {"metadata": {"name": "data"}, "spec": {}},
    });
    let backup = serde_json::from_value(backup).unwrap();
    let copy = json!({"metadata": {"name": "x"}, "status": {"readyToUse": true}});
    Disk {
        name: claims::name(restore, &backup),
        backup,
        claim: (!claim.is_null()).then(|| serde_json::from_value(claim.clone()).unwrap()),
        copy: serde_json::from_value(copy).unwrap(),
        data_volume: None,
    }
}

fn claim(mark: &str, owner: &str) -> Value {
    json!({"metadata": {
        "name": "x", "annotations": {annotations::LAST_RESTORE_UID: mark},
        "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner}],
    }})
}

/// A restore onto the stopped and locked source of its snapshot.
fn observed(spec: &Value, claim: &Value) -> Observed {
    let restore = restore(spec, &Value::Null);
    let snapshot = json!({
        "metadata": {"name": "s"}, "spec": {},
        "status": {"readyToUse": true, "sourceUID": "vm"},
    });
    Observed {
        snapshot: serde_json::from_value(snapshot).unwrap(),
        source: source(),
        disks: vec![disk(&restore, claim)],
        target: Some(target(&json!({"restoreInProgress": "r"}), &json!({}))),
        guest: None,
        leftovers: Vec::new(),
        now: CREATED.parse().unwrap(),
        restore: Arc::new(restore),
    }
}

fn problem(plan: Plan) -> Reason {
    match plan.progress {
        Progress::Waits { reason, .. } | Progress::Failed { reason, .. } => reason,
        other => panic!("no problem: {other:?}, {:?}", plan.step),
    }
}

#[test]
fn running_target_is_treated_by_policy() {
    let with_guest = |policy: &str, minutes: i64| {
        let mut one = observed(&json!({"targetReadinessPolicy": policy}), &Value::Null);
        let guest = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
        one.guest = Some(serde_json::from_value(guest).unwrap());
        one.target = Some(target(&json!({}), &json!({})));
        let created: Timestamp = CREATED.parse().unwrap();
        one.now = created + jiff::SignedDuration::from_mins(minutes);
        plan(&one)
    };
    assert_eq!(with_guest("StopTarget", 9).step, Some(Step::Stop));
    for (policy, minutes, reason) in [
        ("WaitGracePeriod", 4, Reason::RestoreTargetNotReady),
        ("WaitGracePeriod", 5, Reason::RestoreTargetFailed),
        ("WaitEventually", 99, Reason::RestoreTargetNotReady),
        ("FailImmediate", 0, Reason::RestoreTargetFailed),
    ] {
        let plan = with_guest(policy, minutes);
        assert_eq!(plan.step, None);
        assert_eq!(problem(plan), reason, "{policy}");
    }
}

#[test]
fn refused_stop_is_shown() {
    let mut one = observed(
        &json!({"targetReadinessPolicy": "StopTarget"}),
        &Value::Null,
    );
    let guest = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
    one.guest = Some(serde_json::from_value(guest).unwrap());
    one.target = Some(target(&json!({}), &json!({})));
    let refused = RestoreError::Stop(SubresourceError::Refused {
        message: "VM is not running".to_owned(),
    });
    let plan = plan(&one);
    let Some(Progress::Waits { message, .. }) = shown(&plan, Some(&refused)).as_deref().cloned()
    else {
        panic!("not shown");
    };
    assert_eq!(message, "stop the VM: VM is not running");
    assert_eq!(shown(&plan, None).as_deref(), Some(&plan.progress));
    let conflict = RestoreError::Write {
        tried: "lock the VM",
        source: WriteError::Conflict {
            what: "a".to_owned(),
        },
    };
    assert_eq!(shown(&plan, Some(&conflict)), None);
}

#[test]
fn target_is_locked_and_has_to_be_the_source() {
    let mut one = observed(&json!({}), &Value::Null);
    one.target = Some(target(&json!({}), &json!({})));
    assert_eq!(plan(&one).step, Some(Step::Lock));
    one.target = Some(target(&json!({"snapshotInProgress": "t"}), &json!({})));
    assert_eq!(problem(plan(&one)), Reason::RestoreTargetNotReady);
    one.target.as_mut().unwrap().uid = "another".to_owned();
    assert_eq!(problem(plan(&one)), Reason::RestoreNotPossible);
    one.snapshot = None;
    one.source = Value::Null;
    assert_eq!(problem(plan(&one)), Reason::RestoreSourceNotReady);
}

#[test]
fn claims_are_created_replaced_only_in_place_and_owned() {
    let in_place = json!({"volumeRestorePolicy": "InPlace"});
    let steps = |spec: &Value, claim: &Value| plan(&observed(spec, claim)).step;
    assert_eq!(steps(&json!({}), &Value::Null), Some(Step::CreateClaim(0)));
    assert_eq!(
        steps(&in_place, &claim("other", "x")),
        Some(Step::DeleteClaim(0))
    );
    let taken = plan(&observed(&json!({}), &claim("other", "x")));
    assert_eq!(problem(taken), Reason::RestoreNotPossible);
    let updated = steps(&json!({}), &claim(MARK, "x"));
    assert!(
        matches!(updated, Some(Step::UpdateTarget(_))),
        "{updated:?}"
    );
    let mut done = observed(&json!({}), &claim(MARK, "x"));
    let mark = json!({annotations::LAST_RESTORE_UID: MARK});
    done.target = Some(target(&json!({"restoreInProgress": "r"}), &mark));
    assert_eq!(plan(&done).step, Some(Step::OwnClaim(0)));
    // It may run meanwhile, by its patches.
    let guest = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
    done.guest = Some(serde_json::from_value(guest).unwrap());
    assert_eq!(plan(&done).step, Some(Step::OwnClaim(0)));
    done.disks = vec![disk(&done.restore, &claim(MARK, "vm"))];
    assert_eq!(plan(&done).step, Some(Step::Unlock));
    done.target = Some(target(&json!({}), &mark));
    assert_eq!(plan(&done).step, Some(Step::Complete));
    // A claim that the VM does not use is kept, and those of the source of a new VM.
    let mut unused = observed(&in_place, &claim("other", "x"));
    unused.target.as_mut().unwrap().object["spec"] = json!({"runStrategy": "Halted"});
    assert_eq!(problem(plan(&unused)), Reason::RestoreNotPossible);
    let mut elsewhere = in_place.clone();
    elsewhere["target"] = json!({"kind": "VirtualMachine", "name": "b"});
    let mut new = observed(&elsewhere, &claim("other", "x"));
    new.target = None;
    assert_eq!(plan(&new).step, None);
    assert_eq!(problem(plan(&new)), Reason::RestoreNotPossible);
    // A patch that cannot be applied is found before anything is deleted.
    let mut patched = in_place.clone();
    patched["patches"] = json!([r#"{"op": "remove", "path": "/spec/none"}"#]);
    let mut refused = observed(&patched, &claim("other", "x"));
    assert_eq!(plan(&refused).step, Some(Step::Unlock));
    refused.target = Some(target(&json!({}), &json!({})));
    let refused = plan(&refused);
    assert_eq!(refused.step, None);
    assert_eq!(problem(refused), Reason::RestoreNotPossible);
    // Nothing is deleted while the data is not there.
    let mut gone = observed(&in_place, &claim("other", "x"));
    let deleted = json!({
        "metadata": {"name": "x", "deletionTimestamp": CREATED}, "status": {"readyToUse": true},
    });
    gone.disks[0].copy = serde_json::from_value(deleted).unwrap();
    assert_eq!(problem(plan(&gone)), Reason::RestoreSourceNotReady);
    gone.disks[0].copy = None;
    assert_eq!(problem(plan(&gone)), Reason::RestoreSourceNotReady);
}

#[test]
fn new_target_shares_no_claim_with_the_source() {
    let spec = json!({"target": {"kind": "VirtualMachine", "name": "b"}});
    let mut one = observed(&spec, &claim(MARK, "x"));
    one.target = None;
    // Volume `dv` is not in the snapshot.
    assert_eq!(problem(plan(&one)), Reason::RestoreNotPossible);
    let remove = r#"{"op": "remove", "path": "/spec/template/spec/volumes/1"}"#;
    let mut spec = spec;
    spec["patches"] = json!([remove]);
    let mut one = observed(&spec, &claim(MARK, "x"));
    one.target = None;
    let Some(Step::CreateTarget(vm)) = plan(&one).step else {
        panic!("not created");
    };
    assert_eq!(vm["spec"]["runStrategy"], "Halted");
    assert_eq!(vm["metadata"]["labels"]["app"], "wiki");
}

#[test]
fn names_of_claims_follow_policy_and_overrides() {
    let name = |spec: Value| disk(&restore(&spec, &Value::Null), &Value::Null).name;
    assert_eq!(name(json!({})), "restore-u-data");
    assert_eq!(name(json!({"volumeRestorePolicy": "InPlace"})), "data");
    assert_eq!(
        name(json!({"volumeRestorePolicy": "PrefixTargetName"})),
        "a-data"
    );
    let given = json!([{"volumeName": "data", "restoreName": "given"}]);
    assert_eq!(name(json!({"volumeRestoreOverrides": given})), "given");
}

#[test]
fn claim_of_a_vm_with_a_long_name_has_valid_labels() {
    let restore = restore(&json!({}), &Value::Null);
    let disk = disk(&restore, &Value::Null);
    let (key, vm) = (reconcile::Key::new("n", "new"), "a".repeat(100));
    let copy = disk.copy.unwrap();
    let body = claims::body(&restore, &key, &disk.backup, &copy, &vm);
    let value = body["metadata"]["labels"][labels::RESTORE_SOURCE_VM_NAME].as_str();
    let value = value.unwrap();
    assert!(value.len() <= 63 && value.starts_with("aaa"), "{value}");
}

#[test]
fn restored_vm_names_its_new_claims_and_keeps_its_run_strategy() {
    let existing = json!({"metadata": {"labels": {"mine": "1"}}, "spec": {"running": true}});
    let replaced = ["data", "dv"].map(|volume| Replaced {
        volume: volume.to_owned(),
        claim: format!("new-{volume}"),
    });
    let restore = restore(&json!({}), &Value::Null);
    let vm = restored(&restore, &source(), Some(&existing), &replaced).unwrap();
    let expected = json!({
        "metadata": {
            "labels": {"mine": "1"}, "annotations": {annotations::LAST_RESTORE_UID: MARK},
        },
        "spec": {
            "running": true,
            "template": {"spec": {"volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "new-data"}},
                {"name": "dv", "persistentVolumeClaim": {"claimName": "new-dv"}},
                {"name": "root", "containerDisk": {"image": "i"}},
            ]}},
        },
    });
    assert_eq!(vm, expected);
}

#[test]
fn difference_removes_what_is_gone() {
    let from = json!({"a": {"b": 1, "c": 2}, "d": [1], "e": 1});
    let to = json!({"a": {"b": 1, "f": 3}, "d": [2]});
    let expected = json!({"a": {"c": null, "f": 3}, "d": [2], "e": null});
    assert_eq!(difference(&from, &to), expected);
}

#[test]
fn ended_restore_releases_its_target() {
    let failure = json!({"conditions": [{"type": "Failure", "status": "True"}]});
    let mut one = observed(&json!({}), &Value::Null);
    one.restore = Arc::new(restore(&json!({}), &failure));
    assert_eq!(plan(&one).step, Some(Step::Unlock));
    one.target = Some(target(&json!({}), &json!({})));
    assert_eq!(
        (plan(&one).step, plan(&one).progress),
        (None, Progress::Ended)
    );
    // Deleted before it was complete: its claims go, unless a VM has them.
    let mut deleted = restore(&json!({}), &Value::Null);
    deleted.metadata.deletion_timestamp = serde_json::from_value(json!(CREATED)).unwrap();
    let claim_left = serde_json::from_value(json!({"name": "restore-u-data"})).unwrap();
    one.restore = Arc::new(deleted);
    one.leftovers = vec![claim_left];
    assert!(matches!(plan(&one).step, Some(Step::DropClaim(_))));
    let mark = json!({annotations::LAST_RESTORE_UID: MARK});
    one.target = Some(target(&json!({}), &mark));
    assert_eq!(plan(&one).step, Some(Step::RemoveFinalizer));
    let complete = status::complete(&observed(&json!({}), &claim(MARK, "vm")));
    assert_eq!(complete.complete, Some(true));
    assert_eq!(complete.restores[0].volume_name, "data");
}
