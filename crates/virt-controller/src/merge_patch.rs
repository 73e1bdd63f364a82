//! Merge patches from one value to another: pure.

use serde_json::{Map, Value};

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

/// A merge patch of what differs between `old` and `new`, if anything does: it removes what only `old` has.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (name, after) in new {
        let changed = match old.get(name) {
            Some(before) => difference(before, after),
            None => Some(after.clone()),
        };
        patch.extend(changed.map(|changed| (name.clone(), changed)));
    }
    let removed = old.keys().filter(|name| !new.contains_key(*name));
    patch.extend(removed.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}
