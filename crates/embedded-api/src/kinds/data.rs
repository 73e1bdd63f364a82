//! Config maps and secrets: keys, and immutability.

use apimachinery::{Violation, meta};
use serde_json::{Map, Value, json};

use super::{Strategy, fields::fill};

pub(crate) const CONFIG_MAP: Strategy = Strategy {
    validate,
    ..Strategy::PLAIN
};

pub(crate) const SECRET: Strategy = Strategy {
    default: default_secret,
    validate,
    ..Strategy::PLAIN
};

/// `stringData` is write-only: it is merged into `data`.
fn default_secret(secret: &mut Value) {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    fill(secret, "type", "Opaque");
    let texts = secret
        .as_object_mut()
        .and_then(|fields| fields.shift_remove("stringData"));
    for (key, value) in texts
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        secret["data"][key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}

fn validate(live: Option<&Value>, object: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for part in ["data", "binaryData"] {
        for key in object[part].as_object().into_iter().flat_map(Map::keys) {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if !key.chars().all(is_valid) {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                wrong.push(Violation::invalid(
                    format!("{part}[{key}]"),
                    key.as_str(),
                    why,
                ));
            }
        }
    }
    let Some(live) = live else {
        return wrong;
    };
    if meta::kind(object) == "Secret" && live["type"] != object["type"] {
        wrong.push(Violation::invalid(
            "type",
            object["type"].clone(),
            "field is immutable",
        ));
    }
    if live["immutable"] == json!(true) {
        let changed = ["immutable", "data", "binaryData"]
            .into_iter()
            .filter(|field| live[*field] != object[*field]);
        let why = "field is immutable when `immutable` is set";
        wrong.extend(changed.map(|field| Violation::forbidden(field, why)));
    }
    wrong
}
