//! The differences of two values, by JSON pointer.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One place in one answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Difference {
    /// Scenario and request.
    pub(super) request: String,
    /// JSON pointer into the answer.
    pub(super) at: String,
    /// Null where there is nothing.
    pub(super) ours: Value,
    pub(super) theirs: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            request,
            at,
            ours,
            theirs,
        } = self;
        write!(f, "{request}: {at}\n  ours   {ours}\n  theirs {theirs}")
    }
}

/// Everything that differs, as deep as both sides have the same shape.
pub(super) fn differences(request: &str, ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut out = Vec::new();
    if ours["status"] == theirs["status"] {
        descend(request, String::new(), [ours, theirs], &mut out);
    } else {
        // Different statuses: comparing the bodies adds nothing.
        let shown = |answer: &Value| format!("{}: {}", answer["status"], message(answer));
        note(
            request,
            "/status".to_owned(),
            [&shown(ours), &shown(theirs)],
            &mut out,
        );
    }
    out
}

fn message(answer: &Value) -> String {
    let body = &answer["body"];
    match (body, body["message"].as_str()) {
        (_, Some(message)) => message.to_owned(),
        (Value::String(text), None) => text.trim().to_owned(),
        _ => body["kind"].as_str().unwrap_or_default().to_owned(),
    }
}

fn descend(request: &str, at: String, sides: [&Value; 2], out: &mut Vec<Difference>) {
    let [ours, theirs] = sides;
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                let other = right.get(key).unwrap_or(&Value::Null);
                descend(request, below(&at, key), [value, other], out);
            }
            for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
                descend(request, below(&at, key), [&Value::Null, value], out);
            }
            // An explicit null is not the same as nothing.
            for (key, _) in left
                .iter()
                .filter(|(key, value)| value.is_null() && !right.contains_key(*key))
            {
                note(
                    request,
                    below(&at, key),
                    ["an explicit null", "nothing"],
                    out,
                );
            }
            for (key, _) in right
                .iter()
                .filter(|(key, value)| value.is_null() && !left.contains_key(*key))
            {
                note(
                    request,
                    below(&at, key),
                    ["nothing", "an explicit null"],
                    out,
                );
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, pair) in left.iter().zip(right).enumerate() {
                let at = below(&at, &index.to_string());
                descend(request, at, [pair.0, pair.1], out);
            }
        }
        _ if ours == theirs => {}
        _ => out.push(Difference {
            request: request.to_owned(),
            at,
            ours: ours.clone(),
            theirs: theirs.clone(),
        }),
    }
}

fn note(request: &str, at: String, sides: [&str; 2], out: &mut Vec<Difference>) {
    out.push(Difference {
        request: request.to_owned(),
        at,
        ours: sides[0].into(),
        theirs: sides[1].into(),
    });
}

fn below(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_place_is_found_once() {
        let found = differences(
            "r",
            &json!({"a": 1, "b": [1, {"c": 2}], "d": null, "same": {"x": []}}),
            &json!({"b": [1, {"c": 3}], "e/f": true, "same": {"x": []}}),
        );
        let places: Vec<&str> = found.iter().map(|found| found.at.as_str()).collect();
        assert_eq!(places, ["/a", "/b/1/c", "/e~1f", "/d"]);
        assert!(differences("r", &json!([1]), &json!([1])).is_empty());
        assert_eq!(differences("r", &json!([1]), &json!([1, 2])).len(), 1);
    }
}
