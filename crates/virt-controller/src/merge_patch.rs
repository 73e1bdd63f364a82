//! Merge patches that replace a whole value: pure.

use serde_json::Value;

/// A merge patch that turns `old` into `new`: it removes what only `old` has.
pub(crate) fn in_place_of(old: &Value, new: Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(mut new)) => {
            for (name, before) in old {
                let after = new.remove(name).unwrap_or(Value::Null);
                new.insert(name.clone(), in_place_of(before, after));
            }
            Value::Object(new)
        }
        (_, new) => new,
    }
}
