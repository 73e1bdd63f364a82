//! Small building blocks of defaults and validation of built-in kinds.

use apimachinery::Violation;
use serde_json::Value;

/// Validates an enum value.
pub(super) fn check_enum(
    at: &Value,
    path: &str,
    field: &str,
    known: &[&str],
    wrong: &mut Vec<Violation>,
) {
    if let Some(found) = at[field].as_str().filter(|found| !known.contains(found)) {
        let known = known.iter().copied();
        wrong.push(Violation::not_supported(
            format!("{path}.{field}"),
            found,
            known,
        ));
    }
}

/// Sets a field that is absent or has the zero value of its type: to Kubernetes' decoders, an empty
/// string and a zero number are the same as an absent field, unless the field is a pointer.
pub(super) fn fill(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = object {
        let slot = fields.entry(field).or_insert(Value::Null);
        if is_zero(slot) {
            *slot = value.into();
        }
    }
}

/// Sets a field whose zero value means something, or is refused: a pointer in Kubernetes' types.
pub(super) fn fill_absent(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = object {
        let slot = fields.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value.into();
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// Sets an absent field of an object that may be absent itself.
pub(super) fn fill_in(object: &mut Value, part: &str, field: &str, value: impl Into<Value>) {
    if let Some(part) = object.get_mut(part) {
        fill_absent(part, field, value);
    }
}

pub(super) fn each(object: &mut Value, list: &str, change: impl FnMut(&mut Value)) {
    if let Some(Value::Array(items)) = object.get_mut(list) {
        items.iter_mut().for_each(change);
    }
}

/// Kubernetes' rules for names of ports.
pub(super) fn port_name(name: &str) -> Vec<&'static str> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let rules = [
        (name.len() > 15, "must be no more than 15 characters"),
        (
            !name.chars().all(is_allowed),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !name.chars().any(|c| c.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (
            name.starts_with('-') || name.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ];
    let broken = rules.into_iter().filter(|(is_broken, _)| *is_broken);
    broken.map(|(_, why)| why).collect()
}
