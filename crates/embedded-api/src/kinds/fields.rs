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
