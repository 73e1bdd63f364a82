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

pub(super) fn fill(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = object {
        let slot = fields.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value.into();
        }
    }
}

pub(super) fn fill_in(object: &mut Value, part: &str, field: &str, value: impl Into<Value>) {
    if let Some(part) = object.get_mut(part) {
        fill(part, field, value);
    }
}

pub(super) fn each(object: &mut Value, list: &str, change: impl FnMut(&mut Value)) {
    if let Some(Value::Array(items)) = object.get_mut(list) {
        items.iter_mut().for_each(change);
    }
}
