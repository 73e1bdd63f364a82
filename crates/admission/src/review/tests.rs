use std::cell::Cell;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

/// Calls a webhook as `user` and returns its response.
fn call(stage: Stage, user: &str, request: Value) -> Value {
    call_under(stage, user, request, &ClusterConfig::default())
}

fn call_under(stage: Stage, user: &str, mut request: Value, config: &ClusterConfig) -> Value {
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
    let env = Environment {
        now: &now,
        new_uuid: &new_uuid,
    };
    let reviewed = review(stage, &json!({ "request": request }), config, env);
    assert_eq!(reviewed["kind"], "AdmissionReview");
    assert_eq!(reviewed["response"]["uid"], "u-1");
    reviewed["response"].clone()
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
fn malformed_object_is_refused_with_its_path() {
    let mut object = vmi();
    object["spec"]["domain"]["cpu"] = json!({ "cores": "two" });
    for stage in [Stage::Mutate, Stage::Validate] {
        let response = call(
            stage,
            "a-user",
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
        "a-user",
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
            .is_some_and(|text| text.contains("Halted; spec."))
    );
    assert!(
        response["warnings"][0]
            .as_str()
            .is_some_and(|text| text.contains("deprecated"))
    );
}

#[test]
fn exactly_one_known_run_strategy_is_accepted() {
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
        (json!({ "runStrategy": "WaitAsReceiver" }), None),
        (json!({ "running": false }), None),
        (json!({ "runStrategy": "Manual" }), None),
    ] {
        let mut object = vm();
        object["spec"]["runStrategy"].take();
        json_patch::merge(&mut object["spec"], &spec);
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call(Stage::Validate, "a-user", request);
        let found = response["status"]["details"]["causes"][0]["field"].as_str();
        assert_eq!(found, field, "{spec}");
    }
}

#[test]
fn vm_without_template_is_refused() {
    let mut object = vm();
    object["spec"]["template"] = json!({});
    let request = json!({ "operation": "CREATE", "object": object });
    assert_eq!(call(Stage::Mutate, "a-user", request).get("patch"), None);
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call(Stage::Validate, "a-user", request);
    assert_eq!(
        response["status"]["details"]["causes"][0]["reason"],
        "FieldValueRequired"
    );
    assert_eq!(
        response["status"]["details"]["causes"][0]["field"],
        "spec.template"
    );
}

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

/// A manifest in the style of 2018 to 2020.
const OLD_MANIFEST: &str = r#"
apiVersion: kubevirt.io/v1alpha3
kind: VirtualMachineInstance
metadata:
  labels: { kubevirt.io/vm: old }
  name: old
  namespace: default
spec:
  domain:
    cpu: { cores: 2, model: Nehalem-IBRS }
    devices:
      disks: [{ disk: { bus: virtio }, name: host-disk }]
      interfaces: [{ name: default, masquerade: {}, ports: [{ port: 80 }] }]
    machine: { type: "" }
    resources: { requests: { memory: 2048M } }
  networks: [{ name: default, pod: {} }]
  terminationGracePeriodSeconds: 0
  volumes:
    - hostDisk: { path: /data/disk.img, type: Disk, shared: true }
      name: host-disk
status: {}
"#;

fn config_from_legacy_map(data: &[(&str, &str)]) -> ClusterConfig {
    let data = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let written = cluster_config::legacy::read(&data).expect("a good map");
    ClusterConfig::from_kubevirt(&serde_json::from_value(written).expect("a configuration"))
}

#[test]
fn old_manifest_is_accepted_unchanged() {
    let config = config_from_legacy_map(&[("feature-gates", "HostDisk,LiveMigration")]);
    let mut object: Value = serde_saphyr::from_str(OLD_MANIFEST).expect("YAML");
    let written = object.clone();
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call_under(Stage::Mutate, "a-user", request, &config);
    json_patch::patch(&mut object, &patch_of(&response)).expect("applies");
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call_under(Stage::Validate, "a-user", request, &config);
    assert_eq!(response["allowed"], true, "{response:#}");
    // Nothing that was set is changed, except the empty machine type.
    for pointer in [
        "/apiVersion",
        "/metadata/labels",
        "/spec/domain/cpu/model",
        "/spec/domain/cpu/cores",
        "/spec/domain/devices",
        "/spec/domain/resources",
        "/spec/networks",
        "/spec/terminationGracePeriodSeconds",
        "/spec/volumes",
    ] {
        assert_eq!(
            object.pointer(pointer),
            written.pointer(pointer),
            "{pointer}"
        );
    }
    assert_eq!(object["spec"]["domain"]["machine"]["type"], "q35");
    assert_eq!(object["spec"]["domain"]["memory"]["guest"], "2048M");
    assert_eq!(response["warnings"], Value::Null, "all of it is supported");
}

#[test]
fn refusal_names_the_missing_gate() {
    let object: Value = serde_saphyr::from_str(OLD_MANIFEST).expect("YAML");
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call(Stage::Validate, "a-user", request);
    let message = response["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("the feature gate HostDisk"), "{message}");
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
fn unsupported_field_is_accepted_with_a_remedy() {
    for (patch, warning) in [
        (
            json!({ "domain": { "devices": { "tpm": {} } } }),
            "spec.template.spec.domain.devices.tpm: leave it out",
        ),
        (
            json!({ "domain": { "cpu": { "dedicatedCpuPlacement": true, "cores": 2 } } }),
            "spec.template.spec.domain.cpu.dedicatedCpuPlacement: set it to false",
        ),
    ] {
        let mut object = vm();
        let spec = &mut object["spec"]["template"]["spec"];
        spec["domain"]["resources"] = json!({ "requests": { "memory": "128Mi" } });
        json_patch::merge(spec, &patch);
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call(Stage::Validate, "a-user", request);
        assert_eq!(response["allowed"], true, "{response:#}");
        let wanted = format!("accepted, but this version cannot run it yet: {warning}");
        assert_eq!(response["warnings"], json!([wanted]));
    }
}

#[test]
fn invalid_input_is_refused_with_its_path() {
    let name = "a".repeat(300);
    for (patch, field) in [
        (
            json!({ "running": true, "runStrategy": "Always" }),
            "spec.running",
        ),
        (
            json!({ "template": { "spec": { "volumes": [
                { "name": "root", "emptyDisk": { "capacity": "1Gi" } },
                { "name": "root", "emptyDisk": { "capacity": "1Gi" } },
            ] } } }),
            "spec.template.spec.volumes[1].name",
        ),
        (
            json!({ "template": { "spec": { "domain": { "devices": { "disks": [
                { "name": "root" }, { "name": "nowhere" },
            ] } } } } }),
            "spec.template.spec.domain.devices.disks[1].name",
        ),
        (
            json!({ "template": { "spec": { "domain": { "memory": { "guest": "-1Gi" } } } } }),
            "spec.template.spec.domain.memory.guest",
        ),
        (
            json!({ "template": { "spec": { "domain": { "memory": { "guest": "9999999E" } } } } }),
            "spec.template.spec.domain.memory.guest",
        ),
        (
            json!({ "template": { "spec": { "domain": { "cpu": { "sockets": u32::MAX } } } } }),
            "spec.template.spec.domain.cpu",
        ),
        (
            json!({ "template": { "spec": { "domain": { "cpu": { "sockets": -1 } } } } }),
            "spec.template.spec.domain.cpu.sockets",
        ),
        (
            json!({ "template": { "spec": { "hostname": name } } }),
            "spec.template.spec.hostname",
        ),
        (
            json!({ "template": { "spec": { "volumes": [
                { "name": "root", "emptyDisk": { "capacity": "1Gi" } },
                { "name": name, "emptyDisk": { "capacity": "1Gi" } },
            ] } } }),
            "spec.template.spec.volumes[1].name",
        ),
    ] {
        let mut object = vm();
        json_patch::merge(&mut object["spec"], &patch);
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call(Stage::Validate, "a-user", request);
        let status = &response["status"];
        assert_eq!(
            (&status["code"], &status["reason"]),
            (&json!(422), &json!("Invalid"))
        );
        let causes = status["details"]["causes"].as_array().expect("causes");
        assert!(
            causes.iter().any(|cause| cause["field"] == field),
            "{field}: {causes:#?}"
        );
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.len() < 1500, "{message}");
    }
}

#[test]
fn refusal_sums_up_after_ten_violations() {
    let mut object = vmi();
    let disks: Vec<Value> = (0..15)
        .map(|_| json!({ "name": "Bad", "cache": "x" }))
        .collect();
    object["spec"]["domain"]["devices"]["disks"] = json!(disks);
    let request = json!({ "operation": "CREATE", "object": object });
    let status = call(Stage::Validate, "a-user", request)["status"].clone();
    let causes = status["details"]["causes"]
        .as_array()
        .expect("causes")
        .len();
    assert!(causes > 45, "{causes}");
    let message = status["message"].as_str().expect("message");
    assert!(
        message.ends_with(&format!("; and {} more", causes - 10)),
        "{message}"
    );
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
