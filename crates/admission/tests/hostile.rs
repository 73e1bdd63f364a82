//! Hostile input: the response is a clear error with a path, in bounded time and memory; never a panic
//! or a silent default.
//!
//! `cargo xtask bench admission` measures time and memory with the same manifests.

#[path = "../benches/admission/hostile.rs"]
mod manifests;

use std::cell::Cell;

use admission::{review, review::Stage};
use cluster_config::ClusterConfig;
use defaults::Environment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manifests::Format;
use serde_json::{Value, json};
use uuid::Uuid;

fn respond(stage: Stage, object: &Value) -> Value {
    let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("a time");
    let count = Cell::new(0);
    let new_uuid = || {
        count.set(count.get() + 1);
        Uuid::from_u128(count.get())
    };
    let api_version = object["apiVersion"].as_str().unwrap_or("kubevirt.io/v1");
    let (group, version) = api_version.split_once('/').expect("a group");
    let body = json!({ "request": {
        "uid": "u",
        "operation": "CREATE",
        "kind": { "group": group, "version": version, "kind": object["kind"] },
        "userInfo": { "username": "a-user" },
        "object": object,
    }});
    let env = Environment {
        now: &now,
        new_uuid: &new_uuid,
    };
    review(stage, &body, &ClusterConfig::default(), env)["response"].clone()
}

fn vmi() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "a", "namespace": "default" },
        "spec": {
            "architecture": "amd64",
            "domain": {
                "devices": { "disks": [{ "name": "root", "disk": { "bus": "virtio" } }] },
                "memory": { "guest": "64Mi" },
            },
            "volumes": [{ "name": "root", "containerDisk": { "image": "guest:1" } }],
        },
    })
}

/// A VMI with one value replaced, at a path of names and indices.
fn with(path: &str, value: Value) -> Value {
    let mut object = vmi();
    let mut at = &mut object;
    for step in path.split('.') {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[step],
        };
    }
    *at = value;
    object
}

#[test]
fn base_object_is_valid() {
    let response = respond(Stage::Validate, &vmi());
    assert_eq!(response["allowed"], true, "{response}");
}

#[test]
fn generated_values_of_a_template_are_bounded() {
    let template = |count: usize| {
        let from = "[a-z]{128}".repeat(8);
        let one = |i: usize| json!({ "name": format!("P{i}"), "generate": "x", "from": from });
        let parameters: Vec<Value> = (0..count).map(one).collect();
        let vm = json!({ "metadata": { "name": "a" }, "spec": { "template": {} } });
        json!({
            "apiVersion": "template.kubevirt.io/v1alpha1",
            "kind": "VirtualMachineTemplate",
            "metadata": { "name": "t", "namespace": "default" },
            "spec": { "parameters": parameters, "virtualMachine": vm },
        })
    };
    let response = respond(Stage::Validate, &template(64));
    assert_eq!(response["allowed"], true, "{response}");
    let response = respond(Stage::Validate, &template(3000));
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].to_string();
    assert!(message.contains("spec.parameters[64].from"), "{message}");
    assert!(message.contains("exceed 64 KiB"), "{message}");
}

#[test]
fn wrong_type_is_refused_with_its_path() {
    for (path, value, field) in [
        ("spec", json!("x"), "spec"),
        ("spec.domain", json!("x"), "spec.domain"),
        ("spec.volumes", json!({ "name": "root" }), "spec.volumes"),
        ("spec.volumes.0", json!(null), "spec.volumes[0]"),
        ("spec.volumes.0.name", json!(7), "spec.volumes[0].name"),
        (
            "spec.volumes.0.containerDisk",
            json!("guest:1"),
            "spec.volumes[0].containerDisk",
        ),
        (
            "spec.domain.devices.disks.0.disk.bus",
            json!(true),
            "spec.domain.devices.disks[0].disk.bus",
        ),
        (
            "spec.domain.devices.disks.0.bootOrder",
            json!("1"),
            "spec.domain.devices.disks[0].bootOrder",
        ),
        (
            "spec.domain.devices.disks.0.bootOrder",
            json!(-1),
            "spec.domain.devices.disks[0].bootOrder",
        ),
        (
            "spec.domain.cpu",
            json!({ "cores": -1 }),
            "spec.domain.cpu.cores",
        ),
        (
            "spec.domain.cpu",
            json!({ "cores": 1.5 }),
            "spec.domain.cpu.cores",
        ),
        (
            "spec.domain.cpu",
            json!({ "cores": 4_294_967_296_u64 }),
            "spec.domain.cpu.cores",
        ),
        (
            "spec.domain.memory.guest",
            json!({}),
            "spec.domain.memory.guest",
        ),
        (
            "spec.domain.memory.guest",
            json!(true),
            "spec.domain.memory.guest",
        ),
        (
            "spec.terminationGracePeriodSeconds",
            json!(1e300),
            "spec.terminationGracePeriodSeconds",
        ),
        (
            "spec.nodeSelector",
            json!({ "a": 1 }),
            "spec.nodeSelector.a",
        ),
        ("spec.networks", json!("pod"), "spec.networks"),
        ("metadata.labels", json!({ "a": 1 }), "metadata.labels.a"),
        (
            "metadata.creationTimestamp",
            json!("yesterday"),
            "metadata.creationTimestamp",
        ),
    ] {
        for stage in [Stage::Mutate, Stage::Validate] {
            let response = respond(stage, &with(path, value.clone()));
            assert_eq!(response["allowed"], false, "{path} = {value}");
            let causes = &response["status"]["details"]["causes"];
            assert_eq!(causes[0]["field"], field, "{path} = {value}: {causes}");
            assert!(response["patch"].is_null(), "{path} = {value}");
        }
    }
}

#[test]
fn invalid_value_is_refused_with_its_path() {
    for (path, value, field) in [
        (
            "spec.domain.memory.guest",
            "-1Gi",
            "spec.domain.memory.guest",
        ),
        (
            "spec.domain.memory.guest",
            "1Zi",
            "spec.domain.memory.guest",
        ),
        ("spec.domain.memory.guest", "", "spec.domain.memory.guest"),
        (
            "spec.domain.devices.disks.0.disk.bus",
            "warp",
            "spec.domain.devices.disks[0].disk.bus",
        ),
        (
            "spec.volumes.0.name",
            "other",
            "spec.domain.devices.disks[0].name",
        ),
    ] {
        let response = respond(Stage::Validate, &with(path, json!(value)));
        assert_eq!(response["allowed"], false, "{path} = {value}");
        let causes = response["status"]["details"]["causes"]
            .as_array()
            .expect("causes");
        assert!(
            causes.iter().any(|cause| {
                let found = cause["field"].as_str().unwrap_or_default();
                found.starts_with(field)
            }),
            "{path} = {value}: {causes:?}"
        );
    }
}

#[test]
fn message_about_a_long_name_is_bounded() {
    let long = "n".repeat(300);
    for path in ["spec.hostname", "spec.subdomain", "spec.volumes.0.name"] {
        let response = respond(Stage::Validate, &with(path, json!(long)));
        assert_eq!(response["allowed"], false, "{path}");
        let message = response["status"]["message"].as_str().expect("a message");
        assert!(message.len() < 4096, "{path}: {} bytes", message.len());
    }
}

#[test]
fn duplicate_yaml_keys_and_invalid_utf8_are_errors() {
    let twice = "spec:\n  running: true\n  running: false\n";
    let error = serde_saphyr::from_str::<Value>(twice).expect_err("a duplicate key");
    assert!(error.to_string().contains("running"), "{error}");
    assert!(serde_json::from_slice::<Value>(b"{\"a\":\"\xff\"}").is_err());
}

#[test]
fn every_hostile_manifest_is_an_error_or_gets_a_response() {
    for manifest in manifests::all() {
        let value: Option<Value> = match manifest.format {
            Format::Json => serde_json::from_slice(&manifest.bytes).ok(),
            Format::Yaml => std::str::from_utf8(&manifest.bytes)
                .ok()
                .and_then(|text| serde_saphyr::from_str(text).ok()),
        };
        let is_parsed = value.is_some();
        let is_parsable = !manifest.name.starts_with("deep")
            && manifest.format == Format::Json
            && manifest.name != "one-long-number";
        assert_eq!(is_parsed, is_parsable, "{}", manifest.name);
        for stage in [Stage::Mutate, Stage::Validate] {
            let Some(value) = &value else { continue };
            let response = respond(stage, value);
            assert!(response["allowed"].is_boolean(), "{}", manifest.name);
            let length = response.to_string().len();
            assert!(
                stage == Stage::Mutate || length < 4 << 20,
                "{}: a response of {length} bytes",
                manifest.name
            );
        }
    }
}
