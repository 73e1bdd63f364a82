use std::cell::Cell;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

/// Calls a webhook as `user` and returns its response.
fn call(stage: Stage, user: &str, mut request: Value) -> Value {
    let kind = request["object"]["kind"].clone();
    request["uid"] = json!("u-1");
    request["kind"] = json!({ "group": "kubevirt.io", "version": "v1", "kind": kind });
    request["userInfo"] = json!({ "username": user });
    let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
    let count = Cell::new(0);
    let new_uuid = || {
        count.set(count.get() + 1);
        Uuid::from_u128(count.get())
    };
    let around = Surroundings {
        now: &now,
        new_uuid: &new_uuid,
    };
    let answer = review(
        stage,
        &json!({ "request": request }),
        &ClusterConfig::default(),
        around,
    );
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "u-1");
    answer["response"].clone()
}

fn patch_of(response: &Value) -> json_patch::Patch {
    let text = response["patch"].as_str().expect("a patch");
    assert_eq!(response["patchType"], "JSONPatch");
    serde_json::from_slice(&STANDARD.decode(text).expect("base64")).expect("a JSON patch")
}

fn vmi() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "a", "namespace": "default", "creationTimestamp": null },
        "spec": {
            "fromTheFuture": { "x": [1, null] },
            "domain": {
                "devices": { "disks": [{ "name": "root", "odd": 1 }] },
                "resources": { "requests": { "memory": "128Mi", "cpu": 2 } },
            },
            "volumes": [{ "name": "root", "containerDisk": { "image": "guest:1" } }],
        },
    })
}

fn vm() -> Value {
    let mut template = vmi();
    json!({
        "apiVersion": "kubevirt.io/v1alpha3",
        "kind": "VirtualMachine",
        "metadata": { "name": "a", "namespace": "default" },
        "spec": { "runStrategy": "Always", "template": { "spec": template["spec"].take() } },
    })
}

#[test]
fn new_instance_gets_spec_status_and_finalizer() {
    let mut object = vmi();
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call(Stage::Mutate, "somebody", request);
    assert_eq!(response["allowed"], true);
    let patch = patch_of(&response);
    json_patch::patch(&mut object, &patch).expect("applies");
    assert_eq!(
        object,
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {
                "name": "a",
                "namespace": "default",
                "creationTimestamp": null,
                "annotations": { "kubevirt.io/pci-topology-version": "v3" },
                "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
            },
            "spec": {
                "fromTheFuture": { "x": [1, null] },
                "architecture": "amd64",
                "evictionStrategy": "None",
                "domain": {
                    "cpu": {
                        "cores": 1, "sockets": 2, "threads": 1, "maxSockets": 8,
                        "model": "host-model",
                    },
                    "devices": {
                        "disks": [{ "name": "root", "odd": 1, "disk": { "bus": "sata" } }],
                        "interfaces": [{ "name": "default", "masquerade": {} }],
                    },
                    "features": { "acpi": { "enabled": true } },
                    "firmware": { "uuid": Uuid::from_u128(1).to_string() },
                    "machine": { "type": "q35" },
                    "memory": { "guest": "128Mi" },
                    "resources": { "requests": { "memory": "128Mi", "cpu": 2 } },
                },
                "networks": [{ "name": "default", "pod": {} }],
                "volumes": [{
                    "name": "root",
                    "containerDisk": { "image": "guest:1", "imagePullPolicy": "IfNotPresent" },
                }],
            },
            "status": {
                "phase": "Pending",
                "phaseTransitionTimestamps": [{
                    "phase": "Pending",
                    "phaseTransitionTimestamp": "2026-01-02T03:04:05Z",
                }],
                "currentCPUTopology": { "cores": 1, "sockets": 2, "threads": 1 },
                "memory": {
                    "guestAtBoot": "128Mi", "guestCurrent": "128Mi", "guestRequested": "128Mi",
                },
                "runtimeUser": 107,
            },
        })
    );
    let request = json!({ "operation": "CREATE", "object": object });
    assert_eq!(call(Stage::Validate, "somebody", request)["allowed"], true);
}

#[test]
fn defaults_change_nothing_the_second_time() {
    for mut object in [vmi(), vm()] {
        let request = json!({ "operation": "CREATE", "object": object });
        let patch = patch_of(&call(Stage::Mutate, "somebody", request));
        json_patch::patch(&mut object, &patch).expect("applies");
        let request = json!({ "operation": "UPDATE", "object": object, "oldObject": object });
        let response = call(Stage::Mutate, "somebody", request);
        assert_eq!(response.get("patch"), None);
    }
}

#[test]
fn patch_holds_only_what_changed() {
    let request = json!({ "operation": "CREATE", "object": vm() });
    let patch = patch_of(&call(Stage::Mutate, "somebody", request));
    let mut paths: Vec<String> = patch.0.iter().map(|step| step.path().to_string()).collect();
    paths.sort();
    assert_eq!(
        paths,
        [
            "/spec/template/metadata",
            "/spec/template/spec/architecture",
            "/spec/template/spec/domain/firmware",
            "/spec/template/spec/domain/machine",
        ]
    );
}

#[test]
fn old_vm_gets_no_new_identity() {
    let request = json!({ "operation": "UPDATE", "object": vm(), "oldObject": vm() });
    let patch = patch_of(&call(Stage::Mutate, "somebody", request));
    assert!(
        patch
            .0
            .iter()
            .all(|step| !step.path().to_string().contains("firmware")),
        "{patch}"
    );
}

#[test]
fn unreadable_object_is_refused_with_its_path() {
    let mut object = vmi();
    object["spec"]["domain"]["cpu"] = json!({ "cores": "two" });
    for stage in [Stage::Mutate, Stage::Validate] {
        let response = call(
            stage,
            "somebody",
            json!({ "operation": "CREATE", "object": object }),
        );
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 422);
        assert_eq!(
            response["status"]["details"]["causes"][0]["field"],
            "spec.domain.cpu.cores"
        );
    }
}

#[test]
fn refusal_names_every_cause() {
    let mut object = vm();
    object["spec"]["running"] = json!(true);
    object["spec"]["template"]["spec"]["hostname"] = json!("A");
    let response = call(
        Stage::Validate,
        "somebody",
        json!({ "operation": "CREATE", "object": object }),
    );
    let status = &response["status"];
    assert_eq!(status["reason"], "Invalid");
    let fields: Vec<_> = status["details"]["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .map(|cause| cause["field"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(fields, ["spec.running", "spec.template.spec.hostname"]);
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|text| text.contains("remove running; spec."))
    );
    assert!(
        response["warnings"][0]
            .as_str()
            .is_some_and(|text| text.contains("deprecated"))
    );
}

#[test]
fn run_strategy_is_one_known_word() {
    for (spec, field) in [
        (json!({}), Some("spec.runStrategy")),
        (
            json!({ "runStrategy": "Sometimes" }),
            Some("spec.runStrategy"),
        ),
        (
            json!({ "running": false, "runStrategy": "Halted" }),
            Some("spec.running"),
        ),
        (
            json!({ "runStrategy": "WaitAsReceiver" }),
            Some("spec.runStrategy"),
        ),
        (json!({ "running": false }), None),
        (json!({ "runStrategy": "Manual" }), None),
    ] {
        let mut object = vm();
        object["spec"]["runStrategy"].take();
        json_patch::merge(&mut object["spec"], &spec);
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call(Stage::Validate, "somebody", request);
        let found = response["status"]["details"]["causes"][0]["field"].as_str();
        assert_eq!(found, field, "{spec}");
    }
}

#[test]
fn vm_without_template_is_refused() {
    let mut object = vm();
    object["spec"]["template"] = json!({});
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call(Stage::Validate, "somebody", request);
    assert_eq!(
        response["status"]["details"]["causes"][0]["reason"],
        "FieldValueRequired"
    );
    assert_eq!(
        response["status"]["details"]["causes"][0]["field"],
        "spec.template.spec"
    );
}

#[test]
fn vm_under_snapshot_keeps_its_volumes() {
    let mut old = vm();
    old["status"] = json!({ "snapshotInProgress": "s" });
    let mut new = old.clone();
    let update = |new: &Value| {
        let request = json!({ "operation": "UPDATE", "object": new, "oldObject": old });
        call(Stage::Validate, "somebody", request)["allowed"].clone()
    };
    assert_eq!(update(&new), true);
    new["spec"]["runStrategy"] = json!("Halted");
    assert_eq!(update(&new), false);
}

#[test]
fn spec_of_an_instance_never_changes_for_users() {
    let mut changed = vmi();
    changed["spec"]["volumes"][0]["containerDisk"]["image"] = json!("other:2");
    let update = |user| {
        let request = json!({ "operation": "UPDATE", "object": changed, "oldObject": vmi() });
        call(Stage::Validate, user, request)
    };
    let response = update("somebody");
    let cause = &response["status"]["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.volumes[0].containerDisk.image");
    assert_eq!(cause["reason"], "FieldValueNotSupported");
    assert_eq!(update("virt-controller")["allowed"], true);
}

#[test]
fn status_of_an_instance_is_put_back_for_users() {
    let mut old = vmi();
    old["status"] = json!({ "phase": "Running" });
    let mut new = old.clone();
    new["status"]["phase"] = json!("Succeeded");
    new["metadata"]["labels"] = json!({ "a": "b" });
    let request = json!({ "operation": "UPDATE", "object": new, "oldObject": old });
    let patch = patch_of(&call(Stage::Mutate, "somebody", request.clone()));
    json_patch::patch(&mut new, &patch).expect("applies");
    assert_eq!(new["status"], old["status"]);
    assert_eq!(new["metadata"]["labels"]["a"], "b");
    assert_eq!(
        call(Stage::Mutate, "virt-handler", request).get("patch"),
        None
    );
}

#[test]
fn other_requests_pass() {
    let mut object = vmi();
    object["spec"]["hostname"] = json!("A");
    let delete = json!({ "operation": "DELETE", "object": null, "oldObject": object });
    assert_eq!(call(Stage::Validate, "somebody", delete)["allowed"], true);
    let status = json!({ "operation": "UPDATE", "subResource": "status", "object": object });
    assert_eq!(call(Stage::Validate, "somebody", status)["allowed"], true);
}
