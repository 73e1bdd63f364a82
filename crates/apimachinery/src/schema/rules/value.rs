//! Conversion of JSON values to CEL values.

use std::sync::Arc;

use base64::Engine as _;
use kube_cel::cel::{self, objects::Key};
use serde_json::Value;

use super::Whole;
use crate::schema::{Kind, Marks, Schema, format};

/// The CEL value of a JSON value under its schema.
pub(super) fn value(schema: &Schema, raw: &Value, whole: Whole) -> cel::Value {
    match raw {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) if schema.kind == Some(Kind::Number) => {
            cel::Value::Float(number.as_f64().unwrap_or(f64::NAN))
        }
        Value::Number(number) => number.as_i64().map_or_else(
            || cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            cel::Value::Int,
        ),
        Value::String(text) => text_value(schema, text),
        Value::Array(items) => {
            let any = Schema::default();
            let schema = schema.items().unwrap_or(&any);
            let items = items.iter().map(|item| value(schema, item, Whole::Part));
            cel::Value::List(Arc::new(items.collect()))
        }
        Value::Object(fields) => {
            let is_whole = whole == Whole::Object || schema.marks.has(Marks::EMBEDDED);
            let mut members = std::collections::HashMap::new();
            for (name, member) in fields {
                let child = match name.as_str() {
                    "apiVersion" | "kind" if is_whole => text(member),
                    "metadata" if is_whole => Some(metadata(member)),
                    _ => schema
                        .property(name)
                        .or(schema.additional.as_deref())
                        .map(|child| value(child, member, Whole::Part)),
                };
                let Some(child) = child else { continue };
                if schema.additional.is_none() {
                    let escaped = escaped(name);
                    // A keyword can stand behind a dot as it is.
                    if RESERVED.contains(&name.as_str()) {
                        members.insert(Key::String(Arc::new(name.clone())), child.clone());
                    }
                    members.insert(Key::String(Arc::new(escaped)), child);
                } else {
                    members.insert(Key::String(Arc::new(name.clone())), child);
                }
            }
            cel::Value::Map(members.into())
        }
    }
}

fn text(value: &Value) -> Option<cel::Value> {
    let text = value.as_str()?;
    Some(cel::Value::String(Arc::new(text.to_owned())))
}

/// Of the metadata, rules see only the names.
fn metadata(raw: &Value) -> cel::Value {
    let members = ["name", "generateName"].into_iter().filter_map(|field| {
        let key = Key::String(Arc::new(field.to_owned()));
        Some((key, text(raw.get(field)?)?))
    });
    let map: std::collections::HashMap<Key, cel::Value> = members.collect();
    cel::Value::Map(map.into())
}

fn text_value(schema: &Schema, text: &str) -> cel::Value {
    let plain = || cel::Value::String(Arc::new(text.to_owned()));
    if schema.marks.has(Marks::INT_OR_STRING) {
        return plain();
    }
    let format = schema
        .checks
        .as_ref()
        .and_then(|checks| checks.format.as_deref());
    // The formats are validated elsewhere; values that do not parse stay strings.
    match format {
        Some("date-time" | "datetime") => chrono::DateTime::parse_from_rfc3339(text)
            .map_or_else(|_| plain(), cel::Value::Timestamp),
        Some("date") => chrono::DateTime::parse_from_rfc3339(&format!("{text}T00:00:00Z"))
            .map_or_else(|_| plain(), cel::Value::Timestamp),
        Some("duration") => format::nanoseconds(text).map_or_else(plain, |nanoseconds| {
            cel::Value::Duration(chrono::Duration::nanoseconds(nanoseconds))
        }),
        Some("byte") => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_or_else(|_| plain(), |bytes| cel::Value::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

/// Reserved words, which are not identifiers in CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The spelling in rules of a field name that is no CEL identifier.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
