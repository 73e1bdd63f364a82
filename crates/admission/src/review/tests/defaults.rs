//! What the mutating webhook adds to an object, and what it leaves alone.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Stage, call, patch_of, vm, vmi};

/// The API server checks the schema after this webhook, and the schema admits no fractions.
#[test]
fn fractions_of_cpus_and_bytes_are_written_as_text() {
    let sizes = json!({ "requests": { "cpu": 2.2, "memory": 2_222_222.2 } });
    for (path, mut object) in [
        ("/spec/domain/resources", vmi()),
        ("/spec/template/spec/domain/resources", vm()),
    ] {
        *object.pointer_mut(path).expect(path) = sizes.clone();
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call(Stage::Mutate, "a-user", request);
        assert_eq!(response["allowed"], true, "{response}");
        json_patch::patch(&mut object, &patch_of(&response)).expect("applies");
        let expected = json!({ "cpu": "2.2", "memory": "2222222.2" });
        let found = object.pointer(path).expect(path);
        assert_eq!(found["requests"], expected);
        let request = json!({ "operation": "CREATE", "object": object });
        assert_eq!(call(Stage::Validate, "a-user", request)["allowed"], true);
    }
}

#[test]
fn new_instance_gets_spec_status_and_finalizer() {
    let mut object = vmi();
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call(Stage::Mutate, "a-user", request);
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
    assert_eq!(call(Stage::Validate, "a-user", request)["allowed"], true);
}

#[test]
fn defaults_are_idempotent() {
    for mut object in [vmi(), vm()] {
        let request = json!({ "operation": "CREATE", "object": object });
        let patch = patch_of(&call(Stage::Mutate, "a-user", request));
        json_patch::patch(&mut object, &patch).expect("applies");
        let request = json!({ "operation": "UPDATE", "object": object, "oldObject": object });
        let response = call(Stage::Mutate, "a-user", request);
        assert_eq!(response.get("patch"), None);
    }
}

#[test]
fn patch_holds_only_what_changed() {
    let request = json!({ "operation": "CREATE", "object": vm() });
    let patch = patch_of(&call(Stage::Mutate, "a-user", request));
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
fn existing_vm_gets_no_new_identity() {
    let request = json!({ "operation": "UPDATE", "object": vm(), "oldObject": vm() });
    let patch = patch_of(&call(Stage::Mutate, "a-user", request));
    assert!(
        patch
            .0
            .iter()
            .all(|step| !step.path().to_string().contains("firmware")),
        "{patch}"
    );
}

#[test]
fn new_instance_has_the_status_of_components_alone() {
    let mut object = vmi();
    object["status"] = json!({
        "phase": "Running",
        "nodeName": "other",
        "activePods": { "uid": "other" },
        "runtimeUser": 0,
        "fromTheFuture": true,
        "phaseTransitionTimestamps": [{ "phase": "Running" }],
    });
    let created = |user: &str, object: &Value| {
        let mut created = object.clone();
        let request = json!({ "operation": "CREATE", "object": object });
        let patch = patch_of(&call(Stage::Mutate, user, request));
        json_patch::patch(&mut created, &patch).expect("applies");
        created["status"].clone()
    };
    assert_eq!(created("a-user", &object), created("a-user", &vmi()));
    let status = created("virt-controller", &object);
    assert_eq!(status["nodeName"], "other");
    assert_eq!(status["fromTheFuture"], true);
    object["status"] = json!(null);
    assert_eq!(created("a-user", &object), created("a-user", &vmi()));
}

#[test]
fn vmi_status_change_by_a_user_is_reverted() {
    let mut old = vmi();
    old["status"] = json!({ "phase": "Running" });
    let mut new = old.clone();
    new["status"]["phase"] = json!("Succeeded");
    new["metadata"]["labels"] = json!({ "a": "b" });
    let request = json!({ "operation": "UPDATE", "object": new, "oldObject": old });
    let patch = patch_of(&call(Stage::Mutate, "a-user", request.clone()));
    json_patch::patch(&mut new, &patch).expect("applies");
    assert_eq!(new["status"], old["status"]);
    assert_eq!(new["metadata"]["labels"]["a"], "b");
    assert_eq!(
        call(Stage::Mutate, "virt-handler", request).get("patch"),
        None
    );
}
