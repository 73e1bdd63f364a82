//! Bodies of verbs: small objects of options, as JSON or YAML.
//!
//! Invariant: an option that is not understood is never passed over in silence; whoever wrote it
//! counts on it.

use axum::{
    body::{self, Bytes},
    extract::Request,
};
use kubevirt_api::subresource_bodies::{
    FreezeUnfreezeTimeout, PauseOptions, RestartOptions, StartOptions, StopOptions, UnpauseOptions,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::refusal::Refusal;

const LIMIT: usize = 64 << 10;

/// The options of a verb.
pub(crate) trait Options: DeserializeOwned + Default + Send + Sync {
    /// Every field there is.
    const FIELDS: &'static [&'static str];
}

/// Of a verb that has no options of its own.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NoOptions {
    pub(crate) dry_run: Vec<String>,
}

macro_rules! options {
    ($($options:ty: [$($own:literal),*],)+) => {
        $(impl Options for $options {
            const FIELDS: &'static [&'static str] = &["kind", "apiVersion", "dryRun", $($own),*];
        })+
    };
}

options! {
    StartOptions: ["paused"],
    StopOptions: ["gracePeriod"],
    RestartOptions: ["gracePeriodSeconds"],
    PauseOptions: [],
    UnpauseOptions: [],
    NoOptions: [],
    FreezeUnfreezeTimeout: ["unfreezeTimeout"],
}

/// Reads the options of a request; an empty body is all defaults.
pub(super) async fn read<T: Options>(request: Request) -> Result<T, Refusal> {
    let bytes: Bytes = body::to_bytes(request.into_body(), LIMIT)
        .await
        .map_err(|err| Refusal::bad_request(format!("read the request's body: {err}")))?;
    parse(&bytes).map_err(Refusal::bad_request)
}

fn parse<T: Options>(bytes: &[u8]) -> Result<T, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|err| format!("the request's body is no text: {err}"))?;
    let value: Value = serde_saphyr::from_str(text)
        .map_err(|err| format!("the request's body is malformed: {err}"))?;
    let members = match &value {
        Value::Null => return Ok(T::default()),
        Value::Object(members) => members,
        other => {
            return Err(format!(
                "the request's body is {}; an object with the options is expected, such as {{}}",
                kind_of(other)
            ));
        }
    };
    let unknown: Vec<&str> = members
        .keys()
        .map(String::as_str)
        .filter(|key| !T::FIELDS.contains(key))
        .collect();
    if !unknown.is_empty() {
        return Err(format!(
            "the request's body has unknown fields: {}; there are {}",
            unknown.join(", "),
            T::FIELDS.join(", ")
        ));
    }
    serde_path_to_error::deserialize(&value)
        .map_err(|err| format!("the request's body: {}: {}", err.path(), err.inner()))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T: Options>(body: &str) -> String {
        parse::<T>(body.as_bytes()).err().unwrap_or_default()
    }

    #[test]
    fn json_yaml_and_nothing_are_options() {
        let paused = |body: &str| parse::<StartOptions>(body.as_bytes()).unwrap().paused;
        assert_eq!(paused(r#"{"paused": true, "dryRun": null}"#), Some(true));
        assert_eq!(
            paused("apiVersion: v1\nkind: StartOptions\npaused: true\n"),
            Some(true)
        );
        for nothing in ["", " \n", "{}", "null"] {
            assert_eq!(paused(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused_and_says_so() {
        for (body, what) in [
            ("[]", "a list"),
            (r#"["All"]"#, "a list"),
            ("true", "a truth value"),
            ("1", "a number"),
            ("\"paused\"", "a text"),
        ] {
            let said = said::<StartOptions>(body);
            let wanted = format!("the request's body is {what}; an object");
            assert!(said.starts_with(&wanted), "{said}");
        }
    }

    #[test]
    fn fields_that_are_wrong_are_named() {
        for (said, wanted) in [
            (said::<StartOptions>(r#"{"paused": "yes"}"#), "paused: "),
            (said::<StartOptions>(r#"{"dryRun": "All"}"#), "dryRun: "),
            (said::<StartOptions>(r#"{"dryRun": [1]}"#), "dryRun[0]: "),
            (
                said::<StopOptions>(r#"{"gracePeriod": 1.5}"#),
                "gracePeriod: ",
            ),
            (
                said::<RestartOptions>(r#"{"gracePeriod": 1, "now": true}"#),
                "has unknown fields: gracePeriod, now; there are kind",
            ),
            (
                said::<PauseOptions>(r#"{"paused": true}"#),
                "unknown fields: paused",
            ),
            (said::<UnpauseOptions>("{"), "is malformed: "),
        ] {
            assert!(said.contains(wanted), "{said:?} lacks {wanted:?}");
        }
    }

    /// The table of facts knows the fields of every type.
    #[test]
    fn every_field_of_the_options_is_known() {
        let facts = include_str!("../../../kubevirt-api/facts/api-fields.tsv");
        let check = |name: &str, fields: &[&str]| {
            let told: Vec<&str> = facts
                .lines()
                .map(|line| line.split('\t').collect::<Vec<_>>())
                .filter(|row| row.first() == Some(&"kubevirt.io/v1") && row.get(1) == Some(&name))
                .filter_map(|row| row.get(2).copied())
                .filter(|field| !field.starts_with('('))
                .collect();
            assert!(!told.is_empty(), "{name}");
            for field in told {
                assert!(fields.contains(&field), "{name}: {field}");
            }
        };
        check("StartOptions", StartOptions::FIELDS);
        check("StopOptions", StopOptions::FIELDS);
        check("RestartOptions", RestartOptions::FIELDS);
        check("PauseOptions", PauseOptions::FIELDS);
        check("UnpauseOptions", UnpauseOptions::FIELDS);
    }
}
