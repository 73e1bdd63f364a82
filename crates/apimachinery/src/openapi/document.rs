//! Documents of paths and schemas from elsewhere: those of an aggregated group.

use serde_json::{Map, Value, json};

use super::definitions::{Dialect, adapt};
use crate::meta;

/// A document of these paths and schemas. References to schemas are adapted to the version.
pub fn document(
    dialect: Dialect,
    title: &str,
    paths: &Map<String, Value>,
    mut schemas: Map<String, Value>,
) -> Value {
    schemas.sort_keys();
    for schema in schemas.values_mut() {
        adapt(schema, dialect);
    }
    let info = json!({"title": title, "version": "unversioned"});
    match dialect {
        Dialect::V2 => {
            json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": schemas})
        }
        Dialect::V3 => json!({
            "openapi": "3.0.0", "info": info, "paths": paths,
            "components": {"schemas": schemas},
        }),
    }
}

/// Adds the document of an aggregated server in version 2: its paths below `prefix`, and its definitions
/// whose names are not in use.
pub fn merge(document: &mut Value, other: &Value, prefix: &str) {
    for (part, prefix) in [("paths", prefix), ("definitions", "")] {
        let into = meta::object_mut(&mut document[part]);
        for (name, value) in other[part].as_object().into_iter().flatten() {
            if name.starts_with(prefix) && !into.contains_key(name) {
                into.insert(name.clone(), value.clone());
            }
        }
    }
}
