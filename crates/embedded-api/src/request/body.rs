//! Bodies of requests: JSON, YAML or protobuf, of bounded size.

use std::{
    collections::HashSet,
    fmt::{self, Write as _},
};

use apimachinery::{Status, protobuf};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

use crate::error::ApiError;

/// The limit of kube-apiserver.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// Maximum number of reported duplicate fields; a body can contain very many.
const DUPLICATES: usize = 100;

/// The format of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
    JsonPatch,
    MergePatch,
    StrategicMergePatch,
    Apply,
    Protobuf,
}

/// A body and its format.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub format: Format,
    bytes: Bytes,
}

impl Payload {
    pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<Self, ApiError> {
        let format = format(headers)?;
        let collected = Limited::new(body, MAX_BODY)
            .collect()
            .await
            .map_err(|error| {
                if error.downcast_ref::<LengthLimitError>().is_some() {
                    Status::request_entity_too_large(&format!("limit is {MAX_BODY}"))
                } else {
                    Status::bad_request(format!("read request body: {error}"))
                }
            })?;
        Ok(Self {
            format,
            bytes: collected.to_bytes(),
        })
    }

    /// Rejects protobuf where only JSON and YAML have a meaning.
    pub(crate) fn refuse_protobuf(&self) -> Result<(), ApiError> {
        if self.format != Format::Protobuf {
            return Ok(());
        }
        Err(Status::unsupported_media_type(&["application/json", "application/yaml"]).into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The body as a value.
    pub(crate) fn value(&self) -> Result<Value, ApiError> {
        let bad = |why: String| {
            ApiError::from(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type object): {why}"
            )))
        };
        match self.format {
            Format::Protobuf => protobuf::decode(&self.bytes)
                .map_err(|why| Status::bad_request(why.to_string()).into()),
            Format::Yaml | Format::Apply => {
                let text = std::str::from_utf8(&self.bytes).map_err(|e| bad(e.to_string()))?;
                // JSON is YAML, but its own parser is faster and exact.
                match serde_json::from_str(text) {
                    Ok(value) => Ok(value),
                    Err(_) => from_yaml(text).map_err(|e| bad(e.to_string())),
                }
            }
            _ => serde_json::from_slice(&self.bytes)
                .map(whole)
                .map_err(|e| bad(e.to_string())),
        }
    }

    /// Texts about duplicate fields. The last value takes effect.
    pub(crate) fn duplicates(&self) -> Vec<String> {
        match self.format {
            Format::Json | Format::MergePatch | Format::StrategicMergePatch => {
                let paths = self.duplicate_paths().into_iter();
                paths
                    .map(|path| format!("duplicate field {path:?}"))
                    .collect()
            }
            Format::Yaml | Format::Apply => duplicate_key(&self.bytes).into_iter().collect(),
            Format::JsonPatch | Format::Protobuf => Vec::new(),
        }
    }

    /// The same as warnings, which do not name the parser.
    pub(crate) fn duplicate_warnings(&self) -> Vec<String> {
        let texts = self.duplicates().into_iter();
        texts
            .map(|text| text.strip_prefix(YAML_ERRORS).unwrap_or(&text).to_owned())
            .collect()
    }

    /// Paths of duplicate fields in a JSON object.
    fn duplicate_paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        let seed = Duplicates {
            path: &mut String::new(),
            found: &mut found,
        };
        let mut reader = serde_json::Deserializer::from_slice(&self.bytes);
        // Malformed JSON is rejected elsewhere.
        seed.deserialize(&mut reader).ok();
        found
    }
}

fn from_yaml(text: &str) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(text, options)
}

/// How errors of Kubernetes' YAML parser begin.
const YAML_ERRORS: &str = "yaml: unmarshal errors:\n  ";

/// The first duplicate key of a YAML document, as Kubernetes' parser reports it.
fn duplicate_key(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let error = serde_saphyr::from_str::<Value>(text).err()?;
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key, location } => {
            let (line, key) = (location.line(), key.as_deref().unwrap_or_default());
            Some(format!(
                "{YAML_ERRORS}line {line}: key {key:?} already set in map"
            ))
        }
        _ => None,
    }
}

/// Normalizes floats without a fraction to integers.
fn whole(value: Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) if float.fract() == 0.0 && float.abs() < EXACT => format!("{float:.0}")
                .parse::<i64>()
                .map_or(Value::Number(number), Value::from),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key, whole(value)))
            .collect(),
        other => other,
    }
}

/// Scans JSON for duplicate names within one object, discarding the values.
struct Duplicates<'a> {
    /// Path of the current value. One shared buffer: a copy per field would take quadratic time for
    /// a body with one long name and many short ones below it.
    path: &'a mut String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Duplicates<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Duplicates<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&name);
            if !seen.insert(name)
                && self.found.len() < DUPLICATES
                && !self.found.contains(self.path)
            {
                self.found.push(self.path.clone());
            }
            fields.next_value_seed(Duplicates {
                path: &mut *self.path,
                found: &mut *self.found,
            })?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let length = self.path.len();
        for index in 0_usize.. {
            // Writing to a string does not fail.
            write!(self.path, "[{index}]").ok();
            let next = items.next_element_seed(Duplicates {
                path: &mut *self.path,
                found: &mut *self.found,
            })?;
            self.path.truncate(length);
            if next.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

fn format(headers: &HeaderMap) -> Result<Format, ApiError> {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else {
        return Ok(Format::Json);
    };
    let content_type = content_type.to_str().unwrap_or_default();
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/json" | "*/*" | "" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/json-patch+json" => Ok(Format::JsonPatch),
        "application/merge-patch+json" => Ok(Format::MergePatch),
        "application/strategic-merge-patch+json" => Ok(Format::StrategicMergePatch),
        "application/apply-patch+yaml" | "application/apply-patch+json" => Ok(Format::Apply),
        protobuf::MEDIA_TYPE => Ok(Format::Protobuf),
        _ => Err(unsupported()),
    }
}

fn unsupported() -> ApiError {
    Status::unsupported_media_type(&["application/json", "application/yaml", protobuf::MEDIA_TYPE])
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplicates(text: String) -> Vec<String> {
        let payload = Payload {
            format: Format::Json,
            bytes: Bytes::from(text),
        };
        payload.duplicate_paths()
    }

    #[test]
    fn duplicate_names_are_reported_once_by_path() {
        let text = r#"{"a":1,"b":[{"c":1,"c":{"d":1,"d":2},"c":3}],"a":{"e":1},"a":2}"#;
        assert_eq!(duplicates(text.to_owned()), ["b[0].c", "b[0].c.d", "a"]);
    }

    /// Copies of paths, or linear searches for names, would take minutes.
    #[test]
    fn many_names_are_scanned_in_linear_time() {
        let twice: Vec<String> = (0..100_000)
            .map(|n| format!("\"{n}\":0,\"{n}\":0"))
            .collect();
        assert_eq!(
            duplicates(format!("{{{}}}", twice.join(","))).len(),
            DUPLICATES
        );
        let below = vec!["0"; 500_000].join(",");
        let text = format!("{{\"{}\":[{below}]}}", "n".repeat(1 << 20));
        assert!(duplicates(text).is_empty());
    }
}
