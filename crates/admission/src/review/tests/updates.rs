//! Updates: fields that may not change, and who may change the others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ClusterConfig, Environment, Stage, call, patch_of, validate, vm, vmi};

#[test]
fn vm_under_snapshot_keeps_its_volumes() {
    let mut old = vm();
    old["status"] = json!({ "snapshotInProgress": "s" });
    let mut new = old.clone();
    let update = |new: &Value| {
        let request = json!({ "operation": "UPDATE", "object": new, "oldObject": old });
        call(Stage::Validate, "a-user", request)["allowed"].clone()
    };
    assert_eq!(update(&new), true);
    new["spec"]["runStrategy"] = json!("Halted");
    assert_eq!(update(&new), false);
}

#[test]
fn vmi_spec_is_immutable_for_users() {
    let mut changed = vmi();
    changed["spec"]["volumes"][0]["containerDisk"]["image"] = json!("other:2");
    let update = |user| {
        let request = json!({ "operation": "UPDATE", "object": changed, "oldObject": vmi() });
        call(Stage::Validate, user, request)
    };
    let response = update("a-user");
    let cause = &response["status"]["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.volumes[0].containerDisk.image");
    assert_eq!(cause["reason"], "FieldValueNotSupported");
    // Components may change the spec, but not hot-plugged volumes.
    let response = update("virt-controller");
    let cause = &response["status"]["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.volumes[0]");
    changed = vmi();
    changed["spec"]["hostname"] = json!("other");
    let request = json!({ "operation": "UPDATE", "object": changed, "oldObject": vmi() });
    assert_eq!(
        call(Stage::Validate, "virt-controller", request)["allowed"],
        true
    );
}

/// A webhook receives the whole object after `kubectl patch --type merge`.
#[test]
fn patch_of_running_is_accepted_where_running_was_used() {
    for (stored, patch, allowed) in [
        (
            json!({ "running": false }),
            json!({ "running": true }),
            true,
        ),
        (
            json!({ "running": true }),
            json!({ "running": false }),
            true,
        ),
        (
            json!({ "runStrategy": "Halted" }),
            json!({ "running": true }),
            false,
        ),
        (
            json!({ "runStrategy": "Halted" }),
            json!({ "running": true, "runStrategy": null }),
            true,
        ),
        (
            json!({ "running": false }),
            json!({ "runStrategy": "Always" }),
            false,
        ),
    ] {
        let mut old = vm();
        old["spec"]["runStrategy"].take();
        json_patch::merge(&mut old["spec"], &stored);
        let mut new = old.clone();
        json_patch::merge(&mut new["spec"], &patch);
        let request = json!({ "operation": "UPDATE", "object": new, "oldObject": old });
        // Defaults never convert one into the other.
        let patched = call(Stage::Mutate, "a-user", request.clone());
        for step in &patch_of(&patched).0 {
            assert!(!step.path().to_string().contains("run"), "{patched}");
        }
        let response = call(Stage::Validate, "a-user", request);
        assert_eq!(response["allowed"], allowed, "{stored} {patch}");
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert_eq!(
            message.contains("remove one of them"),
            !allowed,
            "{message}"
        );
    }
}

#[test]
fn handler_can_change_guests_of_its_own_node_only() {
    let mut object = vmi();
    object["status"] = json!({ "nodeName": "one" });
    let user = "system:serviceaccount:kubevirt:kubevirt-handler";
    let update = |extra: Value| {
        let request = json!({
            "uid": "u-1",
            "operation": "UPDATE",
            "kind": { "group": "kubevirt.io", "version": "v1", "kind": "VirtualMachineInstance" },
            "userInfo": { "username": user, "extra": extra },
            "object": object,
            "oldObject": object,
        });
        let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
        let env = Environment {
            now: &now,
            new_uuid: &Uuid::nil,
        };
        validate(&request, &ClusterConfig::default(), env)["allowed"].clone()
    };
    let bound = |node: &str| json!({ "authentication.kubernetes.io/node-name": [node] });
    assert_eq!(update(bound("one")), true);
    assert_eq!(update(bound("two")), false);
    assert_eq!(
        update(json!({ "authentication.kubernetes.io/pod-name": ["a"] })),
        false
    );
    assert_eq!(update(Value::Null), true);
}

#[test]
fn other_requests_are_allowed() {
    let mut object = vmi();
    object["spec"]["hostname"] = json!("A");
    let delete = json!({ "operation": "DELETE", "object": null, "oldObject": object });
    assert_eq!(call(Stage::Validate, "a-user", delete)["allowed"], true);
    let status = json!({ "operation": "UPDATE", "subResource": "status", "object": object });
    assert_eq!(call(Stage::Validate, "a-user", status)["allowed"], true);
}

#[test]
fn vm_status_is_checked_by_its_own_rules_only() {
    let old = vm();
    let check = |stage: Stage, status: Value| {
        let mut new = old.clone();
        new["status"] = status;
        let request = json!({
            "operation": "UPDATE", "subResource": "status", "object": new, "oldObject": old,
        });
        call(
            stage,
            "system:serviceaccount:kubevirt:kubevirt-controller",
            request,
        )
    };
    let add = |volume: &str, claim: &str| {
        json!({ "addVolumeOptions": {
            "name": volume,
            "disk": { "disk": { "bus": "scsi" } },
            "volumeSource": { "persistentVolumeClaim": { "claimName": claim } },
        }})
    };
    let plug = |requests: Value| json!({ "volumeRequests": requests });
    let good = check(Stage::Validate, plug(json!([add("more", "claim")])));
    assert_eq!(good["allowed"], true, "{good}");
    // No warning about deprecated fields for writes to the status.
    assert_eq!(good["warnings"], Value::Null);
    for (status, field, part) in [
        (
            plug(json!([add("root", "claim")])),
            "status.volumeRequests[0].addVolumeOptions.name",
            "another volume",
        ),
        (
            plug(json!([add("UPPER", "claim")])),
            "status.volumeRequests",
            "would be invalid",
        ),
        (json!({ "created": "yes" }), "status.created", "a boolean"),
        (
            json!({ "conditions": {} }),
            "status.conditions",
            "a sequence",
        ),
    ] {
        let refused = check(Stage::Validate, status);
        assert_eq!(refused["status"]["code"], 422, "{refused}");
        let causes = &refused["status"]["details"]["causes"];
        assert_eq!(causes[0]["field"], field, "{refused}");
        let message = causes[0]["message"].as_str().expect("message");
        assert!(message.contains(part), "{message}");
    }
    let mutated = check(Stage::Mutate, json!({}));
    assert_eq!(mutated["patch"], Value::Null, "nothing is filled in");
}
