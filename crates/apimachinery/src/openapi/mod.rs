//! `OpenAPI` documents generated from the list of resources.
//!
//! Clients look up the kind of a path (`kubectl explain`), the query parameters of `patch` (support
//! for field validation and dry run), and how the lists of built-in kinds merge. Version 3 omits
//! strategic merge patches on purpose: a `kubectl apply` that finds them merges by that document;
//! otherwise it uses its own, complete schema. The documents are large: generate them once per
//! change of the list and cache them.

mod definitions;
mod document;
mod paths;
mod protobuf;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use crate::Resource;
use crate::discovery::fnv;

use definitions::definitions;
use paths::group_path;

pub use definitions::Dialect;

pub use document::{document, merge};
pub use protobuf::{V2_PROTOBUF, to_protobuf};

/// `/openapi/v2`.
pub fn v2(resources: &[Resource], server_version: &str) -> Value {
    let all: Vec<&Resource> = resources.iter().collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": paths::all(&all, Dialect::V2),
        "definitions": definitions(&all, Dialect::V2),
    })
}

/// `/openapi/v3`: the address of the document of each group and version. The address changes with
/// the content, so that clients may cache documents.
pub fn v3_index(resources: &[Resource]) -> Value {
    let mut index = Vec::new();
    for resource in resources {
        let path = group_path(&resource.group, &resource.version);
        if index.iter().any(|(known, _)| *known == path) {
            continue;
        }
        let mut content = String::new();
        for one in of_version(resources, &resource.group, &resource.version) {
            content.push_str(&one.kind);
            content.push_str(&one.plural);
            for sub in &one.subresources {
                content.push_str(&sub.name);
            }
            content.push_str(&one.schema.to_string());
        }
        index.push((path, content));
    }
    index_of(index)
}

/// The index of documents, by their paths (`apis/group/version`) and contents.
pub fn index_of(documents: impl IntoIterator<Item = (String, String)>) -> Value {
    let entries = documents.into_iter().map(|(path, content)| {
        let url = format!("/openapi/v3/{path}?hash={:016X}", fnv(content.as_bytes()));
        (path, json!({"serverRelativeURL": url}))
    });
    json!({"paths": entries.collect::<Map<String, Value>>()})
}

/// `/openapi/v3/api/v1` and `/openapi/v3/apis/<group>/<version>`.
pub fn v3(
    resources: &[Resource],
    group: &str,
    version: &str,
    server_version: &str,
) -> Option<Value> {
    let of = of_version(resources, group, version);
    (!of.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": server_version},
            "paths": paths::all(&of, Dialect::V3),
            "components": {"schemas": definitions(&of, Dialect::V3)},
        })
    })
}

fn of_version<'a>(resources: &'a [Resource], group: &str, version: &str) -> Vec<&'a Resource> {
    resources
        .iter()
        .filter(|r| r.group == group && r.version == version)
        .collect()
}
