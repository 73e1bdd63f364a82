//! Everything under `examples/` is accepted as it stands, without warnings.

use std::{fs, path::PathBuf};

use admission::{ClusterConfig, Surroundings, review, review::Stage};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use uuid::Uuid;

#[test]
fn every_example_is_admitted() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in fs::read_dir(&directory).expect("examples") {
        let path = entry.expect("entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable");
        assert!(
            text.starts_with("# "),
            "{}: says what it shows",
            path.display()
        );
        let object: Value = serde_saphyr::from_str(&text).expect("YAML");
        let object = mutated(object);
        let response = call(Stage::Validate, &object);
        assert_eq!(
            response["allowed"],
            true,
            "{}: {response:#}",
            path.display()
        );
        assert_eq!(response.get("warnings"), None, "{}", path.display());
        count += 1;
    }
    assert!(count >= 3, "{count} examples");
}

fn mutated(mut object: Value) -> Value {
    let response = call(Stage::Mutate, &object);
    assert_eq!(response["allowed"], true, "{response:#}");
    let patch = STANDARD
        .decode(response["patch"].as_str().expect("patch"))
        .expect("base64");
    let patch = serde_json::from_slice::<json_patch::Patch>(&patch).expect("JSON patch");
    json_patch::patch(&mut object, &patch).expect("applies");
    object
}

fn call(stage: Stage, object: &Value) -> Value {
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
    let around = Surroundings {
        now: &now,
        new_uuid: &Uuid::new_v4,
    };
    let request = json!({
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "kind": { "group": "kubevirt.io", "version": "v1", "kind": object["kind"] },
            "userInfo": { "username": "somebody" },
            "object": object,
        },
    });
    review(stage, &request, &ClusterConfig::default(), around)["response"].clone()
}
