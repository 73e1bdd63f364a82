//! Structural schemas of built-in kinds, generated on first use.
//!
//! The generated schemas deviate from structural ones in a few ways, which are normalized here.

use std::{collections::HashMap, sync::Arc};

use apimachinery::schema::Schema;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::builtin::{BuiltIn, References};

type GroupAndKind = (&'static str, &'static str);

/// Parsed schemas of the built-in kinds in use.
#[derive(Debug, Default)]
pub(crate) struct BuiltInSchemas {
    parsed: Mutex<HashMap<GroupAndKind, Option<Arc<Schema>>>>,
}

impl BuiltInSchemas {
    /// None for a kind without schema.
    pub(crate) fn of(&self, kind: &'static BuiltIn) -> Option<Arc<Schema>> {
        let mut parsed = self.parsed.lock();
        parsed
            .entry((kind.group, kind.kind))
            .or_insert_with(|| parse(kind))
            .clone()
    }
}

fn parse(kind: &BuiltIn) -> Option<Arc<Schema>> {
    let mut raw = (kind.schema)(References::Inlined);
    let root = raw.as_object_mut()?;
    root.remove("required");
    root.remove("$schema");
    root.remove("title");
    if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
        // The API validates these kinds in code, and their schemas are large.
        properties.remove("metadata");
    }
    iron(&mut raw);
    Some(Schema::lenient(&raw))
}

/// Removes descriptions, preserves free-form objects, and makes lists and maps optional: the API
/// treats absent ones as empty.
fn iron(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return;
    };
    fields.remove("description");
    if is_free_form(fields) {
        fields.insert(
            "x-kubernetes-preserve-unknown-fields".to_owned(),
            true.into(),
        );
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(iron);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            iron(inner);
        }
    }
    drop_required_containers(fields);
}

fn is_free_form(fields: &Map<String, Value>) -> bool {
    fields.get("type").and_then(Value::as_str) == Some("object")
        && !fields.contains_key("properties")
        && !fields.contains_key("additionalProperties")
}

fn drop_required_containers(fields: &mut Map<String, Value>) {
    let scalar: Vec<String> = fields
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, schema)| !matches!(schema["type"].as_str(), Some("array" | "object")))
        .map(|(name, _)| name.clone())
        .collect();
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.retain(|name| {
            name.as_str()
                .is_some_and(|name| scalar.iter().any(|s| s == name))
        });
    }
}
