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

/// The largest sum of all values, in bytes.
const MAX_SIZE: usize = 1024 * 1024;

fn validate(live: Option<&Value>, object: &Value) -> Vec<Violation> {
    let is_secret = meta::kind(object) == "Secret";
    let mut wrong = Vec::new();
    for part in ["data", "binaryData"] {
        for key in object[part].as_object().into_iter().flat_map(Map::keys) {
            let path = format!("{part}[{key}]");
            let found = check_key(key).into_iter();
            wrong.extend(found.map(|why| Violation::invalid(path.clone(), key.as_str(), why)));
            if part == "data" && !object["binaryData"][key].is_null() {
                let why = "duplicate of key present in binaryData";
                wrong.push(Violation::invalid(path, key.as_str(), why));
            }
        }
    }
    if size(object, is_secret) > MAX_SIZE {
        // Kubernetes shows the whole object so.
        let path = if is_secret { "data" } else { "[]" };
        wrong.push(Violation::too_long(path, "", 1024 * 1024));
    }
    if is_secret {
        wrong.extend(check_secret_type(object));
    }
    let Some(live) = live else {
        return wrong;
    };
    if is_secret && live["type"] != object["type"] {
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

/// What is wrong with a key, which becomes the name of a file.
fn check_key(key: &str) -> Vec<&'static str> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let rules = [
        (key.len() > 253, "must be no more than 253 bytes"),
        (
            key.is_empty() || !key.chars().all(is_valid),
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ),
        (key == ".", "must not be '.'"),
        (key == "..", "must not be '..'"),
        (
            key.len() > 2 && key.starts_with(".."),
            "must not start with '..'",
        ),
    ];
    let broken = rules.into_iter().filter(|(is_broken, _)| *is_broken);
    broken.map(|(_, why)| why).collect()
}

/// The size of all values; those in base64 are counted as decoded.
fn size(object: &Value, is_secret: bool) -> usize {
    let sum = |part: &str| -> usize {
        let values = object[part].as_object().into_iter().flat_map(Map::values);
        values.filter_map(Value::as_str).map(str::len).sum()
    };
    if is_secret {
        sum("data") / 4 * 3
    } else {
        sum("data") + sum("binaryData") / 4 * 3
    }
}

/// The keys that a secret of each type must have.
const REQUIRED_KEYS: [(&str, &[&str]); 5] = [
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/basic-auth", &["username", "password"]),
];
const ACCOUNT: &str = "kubernetes.io/service-account.name";

fn check_secret_type(secret: &Value) -> Vec<Violation> {
    let kind = secret["type"].as_str().unwrap_or_default();
    if kind == "kubernetes.io/service-account-token" {
        let is_named = meta::annotation(secret, ACCOUNT).is_some_and(|name| !name.is_empty());
        let path = format!("metadata.annotations[{ACCOUNT}]");
        return (!is_named)
            .then(|| Violation::required(path, ""))
            .into_iter()
            .collect();
    }
    let known = REQUIRED_KEYS.iter().find(|(known, _)| *known == kind);
    let Some((_, keys)) = known else {
        return Vec::new();
    };
    let missing: Vec<&&str> = keys
        .iter()
        .filter(|key| secret["data"][**key].is_null())
        .collect();
    // One of name and password is enough.
    if kind == "kubernetes.io/basic-auth" && missing.len() < 2 {
        return Vec::new();
    }
    let required = |key: &&str| Violation::required(format!("data[{key}]"), "");
    missing.into_iter().map(required).collect()
}
