//! Bodies of admission reviews, or only the object of one: both webhooks respond, the patch applies to
//! the object, and a rejection has a message.

use admission::{review, review::Stage};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_config::ClusterConfig;
use defaults::Environment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use uuid::Uuid;

pub fn run(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    if body["request"].is_object() {
        both(&body);
    } else if body.is_object() {
        for operation in ["CREATE", "UPDATE"] {
            both(&wrapped(&body, operation));
        }
    }
}

fn wrapped(object: &Value, operation: &str) -> Value {
    let version = object["apiVersion"].as_str().unwrap_or("kubevirt.io/v1");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let old = if operation == "UPDATE" {
        object.clone()
    } else {
        Value::Null
    };
    json!({
        "request": {
            "uid": "u",
            "kind": { "group": group, "version": version, "kind": object["kind"] },
            "operation": operation,
            "name": object["metadata"]["name"],
            "namespace": "default",
            "userInfo": { "username": "a-user" },
            "object": object,
            "oldObject": old,
        },
    })
}

fn both(body: &Value) {
    let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("a time");
    let new_uuid = || Uuid::from_u128(1);
    let env = || Environment {
        now: &now,
        new_uuid: &new_uuid,
    };
    let config = ClusterConfig::default();
    let mutated = review(Stage::Mutate, body, &config, env());
    let mut body = body.clone();
    if let Some(patch) = mutated["response"]["patch"].as_str() {
        let patch = STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
        json_patch::patch(&mut body["request"]["object"], &patch).expect("the patch fits");
    }
    for answer in [mutated, review(Stage::Validate, &body, &config, env())] {
        let response = &answer["response"];
        let allowed = response["allowed"].as_bool().expect("the field allowed");
        assert_eq!(allowed, response["status"].is_null());
        assert!(allowed || response["status"]["message"].is_string());
    }
}
