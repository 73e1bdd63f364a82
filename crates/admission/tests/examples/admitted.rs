//! Objects through the webhooks, as the API server calls them.

use admission::{
    kinds::Related,
    review::{Stage, review_with},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_config::ClusterConfig;
use defaults::Environment;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    Example,
    catalogue::{group_and_version, is_ours, kind},
    examples,
    schemas::{self, Schemas},
};

/// What the webhooks make of an object.
pub(crate) struct Answer {
    /// With its defaults.
    object: Value,
    /// Everything that is wrong; empty when it is admitted.
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
            let answer = submit(object, &config, "a-user");
            let refusals = answer.refusals.iter();
            found.extend(refusals.map(|refusal| format!("{}: {refusal}", example.file)));
            if let Some(schema) = schemas.of(object) {
                let problems = schemas::problems(schema, &answer.object);
                found.extend(
                    problems
                        .iter()
                        .map(|problem| format!("{}, with defaults: {problem}", example.file)),
                );
            }
            warnings.extend(answer.warnings);
        }
        found.extend(surprises(&example, &warnings));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_instance_of_every_machine_is_admitted() {
    let mut found = Vec::new();
    for example in examples() {
        let config = config(&example.gates);
        for instance in example.objects.iter().filter_map(instance_of) {
            let answer = submit(&instance, &config, "virt-controller");
            let refusals = answer.refusals.iter();
            found.extend(refusals.map(|refusal| format!("{}: {refusal}", example.file)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_gate_that_an_example_names_is_needed() {
    let mut idle = Vec::new();
    for example in examples() {
        for gate in &example.gates {
            let others: Vec<String> = example
                .gates
                .iter()
                .filter(|other| *other != gate)
                .cloned()
                .collect();
            let config = config(&others);
            let is_asked_for = example
                .objects
                .iter()
                .flat_map(|object| submit(object, &config, "a-user").refusals)
                .any(|refusal| refusal.contains(gate.as_str()));
            if !is_asked_for {
                idle.push(format!("{}: nothing needs {gate}", example.file));
            }
        }
    }
    assert!(idle.is_empty(), "{}", idle.join("\n"));
}

/// What the controller makes of a VM. Machines whose size comes from elsewhere are left out: the
/// template alone does not say enough.
fn instance_of(object: &Value) -> Option<Value> {
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

/// Warnings that the example does not announce, and announcements that do not come true.
fn surprises(example: &Example, warnings: &[String]) -> Vec<String> {
    let announced = |warning: &String| example.warns.iter().any(|part| warning.contains(part));
    let unexpected = warnings
        .iter()
        .filter(|warning| !announced(warning) && !warning.contains(NOT_YET))
        .map(|warning| format!("{}: warns {warning:?}", example.file));
    let missing = example
        .warns
        .iter()
        .filter(|part| !warnings.iter().any(|warning| warning.contains(*part)))
        .map(|part| format!("{}: does not warn {part:?}", example.file));
    unexpected.chain(missing).collect()
}

/// What this version does not do yet may change under an example, which stays right.
const NOT_YET: &str = "this version cannot run it yet";

pub(crate) fn config(gates: &[String]) -> ClusterConfig {
    let written = json!({ "developerConfiguration": { "featureGates": gates } });
    ClusterConfig::from_kubevirt(&serde_json::from_value(written).expect("a configuration"))
}

pub(crate) fn submit(object: &Value, config: &ClusterConfig, user: &str) -> Answer {
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
        .flat_map(|answer| answer["warnings"].as_array().cloned().unwrap_or_default())
        .map(|warning| text(&warning).to_owned())
        .collect();
    Answer {
        object,
        refusals,
        warnings,
    }
}

fn refusals(answer: &Value) -> Vec<String> {
    if answer["allowed"] == true {
        return Vec::new();
    }
    let status = &answer["status"];
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
