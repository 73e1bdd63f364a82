//! Validates examples by the CRDs that the API server loads; unknown fields are problems.

use std::{collections::BTreeMap, sync::Arc};

use apimachinery::schema::Schema;
use serde_json::{Value, json};

use super::catalogue::{examples, group_and_version, is_ours, kind};

/// Schemas of all served versions.
pub(crate) struct Schemas(BTreeMap<[String; 3], Arc<Schema>>);

impl Schemas {
    pub(crate) fn load() -> Self {
        let mut all = BTreeMap::new();
        for (name, text) in kubevirt_api::crds::ALL {
            let crd: Value = serde_saphyr::from_str(text).expect("YAML");
            let spec = &crd["spec"];
            for version in spec["versions"].as_array().expect("versions") {
                let schema = Schema::parse(&version["schema"]["openAPIV3Schema"], name)
                    .map_err(|found| format!("{name}: {found:?}"))
                    .expect("a structural schema");
                let key = [&spec["group"], &version["name"], &spec["names"]["kind"]]
                    .map(|part| part.as_str().expect("text").to_owned());
                all.insert(key, schema);
            }
        }
        Self(all)
    }

    /// The schema of an object's kind; `None` if there is no CRD.
    pub(crate) fn of(&self, object: &Value) -> Option<&Schema> {
        let (group, version) = group_and_version(object);
        self.0
            .get(&[group, version, kind(object)].map(str::to_owned))
            .map(AsRef::as_ref)
    }
}

/// All problems of an object by strict validation.
pub(crate) fn problems(schema: &Schema, object: &Value) -> Vec<String> {
    let mut problems: Vec<String> = schema
        .unknown_fields(object)
        .into_iter()
        .map(|path| format!("{path}: unknown field"))
        .collect();
    let mut filled = object.clone();
    schema.fill_defaults(&mut filled);
    problems.extend(
        schema
            .validate(&filled)
            .iter()
            .map(|violation| format!("{}: {}", violation.field, violation.body())),
    );
    problems
}

#[test]
fn fields_of_examples_match_their_schema() {
    let schemas = Schemas::load();
    let mut found = Vec::new();
    for example in examples() {
        for object in example.objects.iter().filter(|object| is_ours(object)) {
            let problems = match schemas.of(object) {
                Some(schema) => problems(schema, object),
                None => vec![format!(
                    "{} {}: not defined",
                    object["apiVersion"],
                    kind(object)
                )],
            };
            found.extend(
                problems
                    .into_iter()
                    .map(|problem| format!("{}: {problem}", example.file)),
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn misspelt_field_and_wrong_type_are_reported() {
    let object = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "spec": { "domain": { "devices": { "disk": [] }, "cpu": { "cores": "two" } } },
    });
    let schemas = Schemas::load();
    let found = problems(schemas.of(&object).expect("defined"), &object).join("\n");
    assert!(found.contains("spec.domain.devices.disk"), "{found}");
    assert!(found.contains("spec.domain.cpu.cores"), "{found}");
}
