//! What users send that is wrong in odd ways: a clear error with a path, or an answer in bounded
//! time and memory; never a panic, never a silent default.
//!
//! The bounds themselves are measured by `cargo xtask bench admission`, with the same manifests.

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

fn answer(stage: Stage, object: &Value) -> Value {
    let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("a time");
    let count = Cell::new(0);
    let new_uuid = || {
        count.set(count.get() + 1);
        Uuid::from_u128(count.get())
    };
    let body = json!({ "request": {
        "uid": "u",
        "operation": "CREATE",
        "kind": { "group": "kubevirt.io", "version": "v1", "kind": object["kind"] },
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

/// A VMI with one value put at a path of names and indices.
fn with(path: &str, value: Value) -> Value {
    let mut object = vmi();
    let mut place = &mut object;
    for step in path.split('.') {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value;
    object
}

#[test]
fn the_object_that_the_cases_start_from_is_good() {
    let answer = answer(Stage::Validate, &vmi());
    assert_eq!(answer["allowed"], true, "{answer}");
}

#[test]
fn what_has_the_wrong_type_is_refused_with_its_path() {
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
            let answer = answer(stage, &with(path, value.clone()));
            assert_eq!(answer["allowed"], false, "{path} = {value}");
            let causes = &answer["status"]["details"]["causes"];
            assert_eq!(causes[0]["field"], field, "{path} = {value}: {causes}");
            assert!(answer["patch"].is_null(), "{path} = {value}");
        }
    }
}

#[test]
fn absurd_values_are_refused_with_their_path() {
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
        let answer = answer(Stage::Validate, &with(path, json!(value)));
        assert_eq!(answer["allowed"], false, "{path} = {value}");
        let causes = answer["status"]["details"]["causes"]
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
fn a_long_name_gets_an_answer_in_words_of_bounded_length() {
    let long = "n".repeat(300);
    for path in ["spec.hostname", "spec.subdomain", "spec.volumes.0.name"] {
        let answer = answer(Stage::Validate, &with(path, json!(long)));
        assert_eq!(answer["allowed"], false, "{path}");
        let message = answer["status"]["message"].as_str().expect("a message");
        assert!(message.len() < 4096, "{path}: {} bytes", message.len());
    }
}

#[test]
fn keys_twice_in_yaml_and_bytes_that_are_no_text_are_errors() {
    let twice = "spec:\n  running: true\n  running: false\n";
    let error = serde_saphyr::from_str::<Value>(twice).expect_err("a key twice");
    assert!(error.to_string().contains("running"), "{error}");
    assert!(serde_json::from_slice::<Value>(b"{\"a\":\"\xff\"}").is_err());
}

#[test]
fn every_hostile_manifest_is_an_error_or_gets_an_answer() {
    for manifest in manifests::all() {
        let value: Option<Value> = match manifest.format {
            Format::Json => serde_json::from_slice(&manifest.bytes).ok(),
            Format::Yaml => std::str::from_utf8(&manifest.bytes)
                .ok()
                .and_then(|text| serde_saphyr::from_str(text).ok()),
        };
        let is_read = value.is_some();
        let is_for_us = !manifest.name.starts_with("deep")
            && manifest.format == Format::Json
            && manifest.name != "one-long-number";
        assert_eq!(is_read, is_for_us, "{}", manifest.name);
        for stage in [Stage::Mutate, Stage::Validate] {
            let Some(value) = &value else { continue };
            let answer = answer(stage, value);
            assert!(answer["allowed"].is_boolean(), "{}", manifest.name);
            let length = answer.to_string().len();
            assert!(
                stage == Stage::Mutate || length < 4 << 20,
                "{}: an answer of {length} bytes",
                manifest.name
            );
        }
    }
}
