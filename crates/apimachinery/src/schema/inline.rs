//! Replaces each `$ref` with its target.

use serde_json::{Map, Value};

/// Deeper than any kind of the API; recursive types end here as "anything".
const MAX_DEPTH: usize = 40;

/// The schema with every local `$ref` (into `$defs`, `definitions` or `components/schemas`)
/// replaced by its target. Recursive types are cut off at the second visit.
pub fn inline(raw: &Value) -> Value {
    let mut out = expand(raw, raw, &mut Vec::new());
    if let Value::Object(out) = &mut out {
        out.shift_remove("$defs");
        out.shift_remove("definitions");
        out.shift_remove("$schema");
    }
    out
}

fn expand(node: &Value, root: &Value, open: &mut Vec<String>) -> Value {
    match node {
        Value::Object(fields) => expand_object(fields, root, open),
        Value::Array(items) => items.iter().map(|item| expand(item, root, open)).collect(),
        scalar => scalar.clone(),
    }
}

fn expand_object(fields: &Map<String, Value>, root: &Value, open: &mut Vec<String>) -> Value {
    // Generators wrap a reference in a lone `allOf` to attach a description.
    if let Some([only]) = fields
        .get("allOf")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        && only.get("$ref").is_some()
    {
        let mut flat = fields.clone();
        flat.shift_remove("allOf");
        flat.insert("$ref".to_owned(), only["$ref"].clone());
        return expand_object(&flat, root, open);
    }
    let Some(name) = fields.get("$ref").and_then(Value::as_str) else {
        let skip = |key: &str| matches!(key, "$defs" | "definitions");
        let kept = fields
            .iter()
            .filter(|(key, value)| !(skip(key) && value.is_object()));
        return Value::Object(
            kept.map(|(k, v)| (k.clone(), expand(v, root, open)))
                .collect(),
        );
    };
    let target = name
        .strip_prefix('#')
        .and_then(|pointer| root.pointer(pointer));
    let mut out = match target {
        Some(target) if open.len() < MAX_DEPTH && !open.iter().any(|seen| seen == name) => {
            open.push(name.to_owned());
            let out = expand(target, root, open);
            open.pop();
            out
        }
        _ => serde_json::json!({"x-kubernetes-preserve-unknown-fields": true}),
    };
    // Siblings of the reference (a description, a default) take precedence.
    if let Value::Object(out) = &mut out {
        for (key, value) in fields.iter().filter(|(key, _)| *key != "$ref") {
            out.insert(key.clone(), value.clone());
        }
    }
    out
}
