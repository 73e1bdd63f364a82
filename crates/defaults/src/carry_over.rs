//! Applies the changes of a typed object to the raw JSON it was deserialized from.

use serde_json::{Map, Value};

/// Applies only the differences between `before` and `after` to `raw`. Fields that the types do not
/// know, and other notations of an equal value, are preserved.
pub fn carry_over(raw: &mut Value, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            carry_object(raw, before, after);
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() && before.len() <= after.len() =>
        {
            for ((raw, before), after) in raw.iter_mut().zip(before).zip(after) {
                carry_over(raw, before, after);
            }
            raw.extend(after.iter().skip(before.len()).cloned());
        }
        (raw, _, after) => *raw = after.clone(),
    }
}

/// Writes a quantity that is a JSON number with a fraction as text: schemas admit integers and text
/// only, but clients also send fractions, which the types read.
pub fn write_fractions_as_text(raw: &mut Value, typed: &Value) {
    match (raw, typed) {
        (Value::Object(raw), Value::Object(typed)) => {
            for (key, raw) in raw {
                if let Some(typed) = typed.get(key) {
                    write_fractions_as_text(raw, typed);
                }
            }
        }
        (Value::Array(raw), Value::Array(typed)) => {
            for (raw, typed) in raw.iter_mut().zip(typed) {
                write_fractions_as_text(raw, typed);
            }
        }
        (raw @ Value::Number(_), Value::String(_)) if raw.is_f64() => *raw = typed.clone(),
        _ => {}
    }
}

fn carry_object(
    raw: &mut Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) {
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        raw.remove(key);
    }
    for (key, after) in after {
        let before = before.get(key).unwrap_or(&Value::Null);
        if before != after {
            carry_over(raw.entry(key).or_insert(Value::Null), before, after);
        } else if after.as_object().is_some_and(Map::is_empty) {
            // The schema requires some objects that manifests often omit, such as `devices`.
            raw.entry(key).or_insert_with(|| after.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_changes_are_applied() {
        let mut raw = json!({ "a": 1, "new": { "x": null }, "list": [{ "n": "1", "odd": true }] });
        let before = json!({ "a": "1", "list": [{ "n": "1" }] });
        let after = json!({ "a": "1", "b": {}, "list": [{ "n": "2" }, { "n": "3" }] });
        carry_over(&mut raw, &before, &after);
        assert_eq!(
            raw,
            json!({
                "a": 1,
                "new": { "x": null },
                "list": [{ "n": "2", "odd": true }, { "n": "3" }],
                "b": {},
            })
        );
    }

    #[test]
    fn fractions_of_quantities_become_text() {
        let mut raw = json!({"cpu": 2.2, "memory": 64, "ratio": 1.5, "list": [{"a": 0.5}]});
        let typed = json!({"cpu": "2.2", "memory": "64", "ratio": 1.5, "list": [{"a": "0.5"}]});
        write_fractions_as_text(&mut raw, &typed);
        let expected = json!({"cpu": "2.2", "memory": 64, "ratio": 1.5, "list": [{"a": "0.5"}]});
        assert_eq!(raw, expected);
    }

    #[test]
    fn removed_field_is_removed() {
        let mut raw = json!({ "a": 1, "b": 2 });
        carry_over(&mut raw, &json!({ "a": 1 }), &json!({}));
        assert_eq!(raw, json!({ "b": 2 }));
    }
}
