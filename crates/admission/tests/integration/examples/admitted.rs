//! Runs every example through the webhooks, as the API server does.

use admission::{
    kinds::Related,
    review::{Stage, review_with},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_config::ClusterConfig;
use defaults::Environment;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Example,
    catalogue::{group_and_version, is_ours, kind},
    examples,
    schemas::{self, Schemas},
};

/// Result of both webhooks for an object.
pub(crate) struct Response {
    /// The object with defaults.
    object: Value,
    /// All problems; empty if it is admitted.
    pub(crate) refusals: Vec<String>,
    warnings: Vec<String>,
}

#[test]
fn every_example_is_admitted() {
    let schemas = Schemas::load();
    let mut found = Vec::new();
    for example in examples() {
        let config = config(&example.gates);
        let mut warnings = Vec::new();
        for object in example.objects.iter().filter(|object| is_ours(object)) {
            let response = submit(object, &config, "a-user");
            let refusals = response.refusals.iter();
            found.extend(refusals.map(|refusal| format!("{}: {refusal}", example.file)));
            if let Some(schema) = schemas.of(object) {
                let problems = schemas::problems(schema, &response.object);
                found.extend(
                    problems
                        .iter()
                        .map(|problem| format!("{}, with defaults: {problem}", example.file)),
                );
            }
            warnings.extend(response.warnings);
        }
        found.extend(unexpected_warnings(&example, &warnings));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn vmi_of_every_vm_is_admitted() {
    let mut found = Vec::new();
    for example in examples() {
        let config = config(&example.gates);
        for instance in example.objects.iter().filter_map(vmi_of) {
            let response = submit(&instance, &config, "virt-controller");
            let refusals = response.refusals.iter();
            found.extend(refusals.map(|refusal| format!("{}: {refusal}", example.file)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_listed_gate_is_needed() {
    let mut unneeded = Vec::new();
    for example in examples() {
        for gate in &example.gates {
            let others: Vec<String> = example
                .gates
                .iter()
                .filter(|other| *other != gate)
                .cloned()
                .collect();
            let config = config(&others);
            let is_needed = example
                .objects
                .iter()
                .flat_map(|object| submit(object, &config, "a-user").refusals)
                .any(|refusal| refusal.contains(gate.as_str()));
            if !is_needed {
                unneeded.push(format!("{}: nothing needs {gate}", example.file));
            }
        }
    }
    assert!(unneeded.is_empty(), "{}", unneeded.join("\n"));
}

/// The VMI of a VM. VMs with an instance type are skipped, because the template alone is incomplete.
fn vmi_of(object: &Value) -> Option<Value> {
    if kind(object) != "VirtualMachine" || object["spec"].get("instancetype").is_some() {
        return None;
    }
    let template = &object["spec"]["template"];
    let mut metadata = template.get("metadata").cloned().unwrap_or(json!({}));
    metadata["name"] = object["metadata"]["name"].clone();
    Some(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": template["spec"],
    }))
}

/// Unannounced warnings, and announced warnings that do not occur.
fn unexpected_warnings(example: &Example, warnings: &[String]) -> Vec<String> {
    let announced = |warning: &String| example.warns.iter().any(|part| warning.contains(part));
    let unexpected = warnings
        .iter()
        .filter(|warning| !announced(warning) && !warning.contains(UNSUPPORTED))
        .map(|warning| format!("{}: warns {warning:?}", example.file));
    let missing = example
        .warns
        .iter()
        .filter(|part| !warnings.iter().any(|warning| warning.contains(*part)))
        .map(|part| format!("{}: does not warn {part:?}", example.file));
    unexpected.chain(missing).collect()
}

/// Warnings about unsupported features, which examples do not announce because they change.
const UNSUPPORTED: &str = "this version cannot run it yet";

pub(crate) fn config(gates: &[String]) -> ClusterConfig {
    let written = json!({ "developerConfiguration": { "featureGates": gates } });
    ClusterConfig::from_kubevirt(&serde_json::from_value(written).expect("a configuration"))
}

pub(crate) fn submit(object: &Value, config: &ClusterConfig, user: &str) -> Response {
    let mutated = call(Stage::Mutate, object, config, user);
    let mut object = object.clone();
    if let Some(patch) = mutated["patch"].as_str() {
        let patch = STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("JSON patch");
        json_patch::patch(&mut object, &patch).expect("applies");
    }
    let validated = call(Stage::Validate, &object, config, user);
    let refusals = [&mutated, &validated]
        .into_iter()
        .flat_map(refusals)
        .collect();
    let warnings = [&mutated, &validated]
        .into_iter()
        .flat_map(|response| response["warnings"].as_array().cloned().unwrap_or_default())
        .map(|warning| text(&warning).to_owned())
        .collect();
    Response {
        object,
        refusals,
        warnings,
    }
}

fn refusals(response: &Value) -> Vec<String> {
    if response["allowed"] == true {
        return Vec::new();
    }
    let status = &response["status"];
    match status["details"]["causes"].as_array() {
        Some(causes) => causes
            .iter()
            .map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"])))
            .collect(),
        None => vec![status.to_string()],
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn call(stage: Stage, object: &Value, config: &ClusterConfig, user: &str) -> Value {
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
    let env = Environment {
        now: &now,
        new_uuid: &Uuid::new_v4,
    };
    let (group, version) = group_and_version(object);
    let request = json!({
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "kind": { "group": group, "version": version, "kind": kind(object) },
            "userInfo": { "username": user },
            "object": object,
        },
    });
    // The VMI that an example refers to exists.
    let related = Related {
        vmi: Some(Box::default()),
        ..Related::default()
    };
    review_with(stage, &request, config, env, &related)["response"].clone()
}
