//! `OpenAPI` of the aggregated groups, made from the list of verbs. The API server merges it into its own
//! documents.
//!
//! The schemas of bodies are `schemas.json`, which `cargo xtask generate` makes from the types.

mod operation;

use apimachinery::openapi::{Dialect, document, index_of};
use axum::{Json, Router, routing::get};
use installation::registration::{AGGREGATED, Aggregated, TEMPLATE_SUBRESOURCES};
use serde_json::{Map, Value, json};

use crate::{settings::Shared, verbs};

const SCHEMAS: &str = include_str!("schemas.json");
const TITLE: &str = "Ferrovirt subresources";

pub(crate) fn mount(mut router: Router<Shared>) -> Router<Shared> {
    router = router
        .route("/openapi/v2", get(|| async { Json(v2()) }))
        .route("/openapi/v3", get(|| async { Json(v3_index()) }));
    for (api, version) in versions() {
        let path = format!("/openapi/v3/apis/{}/{version}", api.group);
        let v3 = get(move || async move { Json(v3(api, version)) });
        router = router.route(&path, v3);
    }
    router
}

/// Each version of each group.
fn versions() -> impl Iterator<Item = (Aggregated, &'static str)> {
    let all = AGGREGATED.into_iter();
    all.flat_map(|api| api.versions.iter().map(move |version| (api, *version)))
}

fn v2() -> Value {
    let all = versions().flat_map(|(api, version)| paths(api, version, Dialect::V2));
    document(Dialect::V2, TITLE, &all.collect(), schemas())
}

fn v3(api: Aggregated, version: &'static str) -> Value {
    let paths = paths(api, version, Dialect::V3).collect();
    document(Dialect::V3, TITLE, &paths, schemas())
}

fn v3_index() -> Value {
    index_of(versions().map(|(api, version)| {
        let path = format!("apis/{}/{version}", api.group);
        (path, v3(api, version).to_string())
    }))
}

/// Each path with its operation.
fn paths(
    api: Aggregated,
    version: &'static str,
    dialect: Dialect,
) -> impl Iterator<Item = (String, Value)> {
    let of_api = verbs::ALL
        .iter()
        .filter(move |entry| entry.object.api() == api);
    of_api.flat_map(move |entry| {
        let paths = entry.paths(version).into_iter();
        paths.map(move |path| {
            let item = operation::path_item(entry, version, &path, dialect);
            (path, item)
        })
    })
}

/// The name of a type's definition: not one of a kind, as kubectl takes those for the kind itself.
fn name_of(name: &str) -> String {
    format!("io.kubevirt.subresources.{name}")
}

fn schemas() -> Map<String, Value> {
    let types: Map<String, Value> =
        serde_json::from_str(SCHEMAS).expect("the generated file is valid");
    let untyped = [
        ("VirtualMachine", "kubevirt.io/v1"),
        ("ObjectGraphNode", "kubevirt.io/v1"),
        (
            "ProcessedVirtualMachineTemplate",
            TEMPLATE_SUBRESOURCES.group,
        ),
    ]
    .map(|(name, group)| {
        let what = format!("A {name} of {group}.");
        (
            name.to_owned(),
            json!({"type": "object", "description": what}),
        )
    });
    types
        .into_iter()
        .chain(untyped)
        .map(|(name, schema)| (name_of(&name), schema))
        .collect()
}

#[cfg(test)]
mod tests {
    use installation::registration::SUBRESOURCES;

    use super::*;
    use crate::verbs::Answer;

    #[test]
    fn every_type_of_a_verb_has_a_schema() {
        let schemas = schemas();
        for entry in verbs::ALL {
            let answer = match entry.contract.answer {
                Answer::Object(name) => Some(name),
                _ => None,
            };
            for name in entry.contract.body.into_iter().chain(answer) {
                let schema = &schemas[&name_of(name)];
                assert_eq!(schema["type"], "object", "{name}");
            }
        }
    }

    #[test]
    fn operations_have_unique_names_and_valid_references() {
        for (document, prefix) in [
            (v2(), "#/definitions/"),
            (v3(SUBRESOURCES, "v1"), "#/components/schemas/"),
            (
                v3(TEMPLATE_SUBRESOURCES, "v1beta1"),
                "#/components/schemas/",
            ),
        ] {
            let defined = match prefix {
                "#/definitions/" => &document["definitions"],
                _ => &document["components"]["schemas"],
            };
            let text = document["paths"].to_string();
            for reference in text.split("\"$ref\":\"").skip(1) {
                let reference = reference.split('"').next().unwrap();
                let name = reference.strip_prefix(prefix).unwrap();
                assert!(defined[name].is_object(), "{reference}");
            }
            let mut names: Vec<&str> = text
                .split("\"operationId\":\"")
                .skip(1)
                .map(|rest| rest.split('"').next().unwrap())
                .collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }

    #[test]
    fn documents_of_a_verb_with_everything() {
        let stop =
            "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}/stop";
        insta::assert_json_snapshot!("stop-v2", v2()["paths"][stop]);
        insta::assert_json_snapshot!("stop-v3", v3(SUBRESOURCES, "v1")["paths"][stop]);
    }
}
