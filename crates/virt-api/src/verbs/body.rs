//! Bodies of verbs: small objects of options, as JSON or YAML.
//!
//! Invariant: an unknown option is an error, because the user relies on it.

use axum::{
    body::{self, Bytes},
    extract::Request,
};
use kubevirt_api::confidential::{SEVSecretOptions, SEVSessionOptions};
use kubevirt_api::object_graph::ObjectGraphOptions;
use kubevirt_api::subresource_bodies::{
    AddVolumeOptions, EvacuateCancelOptions, FreezeUnfreezeTimeout, MigrateOptions, PauseOptions,
    RemoveVolumeOptions, RestartOptions, StartOptions, StopOptions, UnpauseOptions,
};
use kubevirt_api::template::ProcessOptions;
use kubevirt_api::vm_status::VirtualMachineMemoryDumpRequest;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::refusal::Refusal;

const LIMIT: usize = 64 << 10;

/// The options of a verb.
pub(crate) trait Options: DeserializeOwned + Default + Send + Sync {
    /// The type in documents, if there are options of its own.
    const TYPE: Option<&'static str>;
    /// All fields.
    const FIELDS: &'static [&'static str];
}

/// The options of a verb without options of its own.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NoOptions {
    pub(crate) dry_run: Vec<String>,
}

macro_rules! options {
    ($($options:ident: [$($own:literal),*],)+) => {
        $(impl Options for $options {
            const TYPE: Option<&'static str> = Some(stringify!($options));
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
    EvacuateCancelOptions: ["evacuationNodeName"],
    FreezeUnfreezeTimeout: ["unfreezeTimeout"],
    AddVolumeOptions: ["name", "disk", "volumeSource"],
    RemoveVolumeOptions: ["name"],
    MigrateOptions: ["addedNodeSelector"],
    ObjectGraphOptions: ["includeOptionalNodes", "labelSelector"],
}

impl Options for VirtualMachineMemoryDumpRequest {
    const TYPE: Option<&'static str> = Some("VirtualMachineMemoryDumpRequest");
    /// It has no `dryRun`.
    const FIELDS: &'static [&'static str] = &[
        "claimName",
        "phase",
        "remove",
        "startTimestamp",
        "endTimestamp",
        "fileName",
        "message",
    ];
}

impl Options for SEVSessionOptions {
    const TYPE: Option<&'static str> = Some("SEVSessionOptions");
    /// It has no `dryRun`.
    const FIELDS: &'static [&'static str] = &["kind", "apiVersion", "session", "dhCert"];
}

impl Options for SEVSecretOptions {
    const TYPE: Option<&'static str> = Some("SEVSecretOptions");
    /// It has no `dryRun`.
    const FIELDS: &'static [&'static str] = &["kind", "apiVersion", "header", "secret"];
}

impl Options for ProcessOptions {
    const TYPE: Option<&'static str> = Some("ProcessOptions");
    /// It has no `dryRun`, and metadata that clients may send.
    const FIELDS: &'static [&'static str] = &["kind", "apiVersion", "metadata", "parameters"];
}

impl Options for NoOptions {
    const TYPE: Option<&'static str> = None;
    const FIELDS: &'static [&'static str] = &["kind", "apiVersion", "dryRun"];
}

/// Reads the options of a request; an empty body is all defaults.
pub(super) async fn read<T: Options>(request: Request) -> Result<T, Refusal> {
    parse(&bytes(request).await?).map_err(Refusal::bad_request)
}

pub(super) async fn bytes(request: Request) -> Result<Bytes, Refusal> {
    body::to_bytes(request.into_body(), LIMIT)
        .await
        .map_err(|err| Refusal::bad_request(format!("read the request's body: {err}")))
}

pub(super) fn parse<T: Options>(bytes: &[u8]) -> Result<T, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|err| format!("the request's body is not text: {err}"))?;
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
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error<T: Options>(body: &str) -> String {
        parse::<T>(body.as_bytes()).err().unwrap_or_default()
    }

    #[test]
    fn json_yaml_and_empty_bodies_parse() {
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
    fn body_that_is_not_an_object_is_refused() {
        for (body, what) in [
            ("[]", "a list"),
            (r#"["All"]"#, "a list"),
            ("true", "a boolean"),
            ("1", "a number"),
            ("\"paused\"", "a string"),
        ] {
            let message = error::<StartOptions>(body);
            let wanted = format!("the request's body is {what}; an object");
            assert!(message.starts_with(&wanted), "{message}");
        }
    }

    #[test]
    fn errors_name_the_wrong_field() {
        for (message, wanted) in [
            (error::<StartOptions>(r#"{"paused": "yes"}"#), "paused: "),
            (error::<StartOptions>(r#"{"dryRun": "All"}"#), "dryRun: "),
            (error::<StartOptions>(r#"{"dryRun": [1]}"#), "dryRun[0]: "),
            (
                error::<StopOptions>(r#"{"gracePeriod": 1.5}"#),
                "gracePeriod: ",
            ),
            (
                error::<RestartOptions>(r#"{"gracePeriod": 1, "now": true}"#),
                "has unknown fields: gracePeriod, now; there are kind",
            ),
            (
                error::<PauseOptions>(r#"{"paused": true}"#),
                "unknown fields: paused",
            ),
            (error::<UnpauseOptions>("{"), "is malformed: "),
        ] {
            assert!(message.contains(wanted), "{wanted:?} is not in {message:?}");
        }
    }

    /// The table of facts has the fields of every type.
    #[test]
    fn every_field_of_the_options_is_known() {
        let facts = include_str!("../../../kubevirt-api/facts/api-fields.tsv");
        let check = |name: &str, fields: &[&str]| {
            let listed: Vec<&str> = facts
                .lines()
                .map(|line| line.split('\t').collect::<Vec<_>>())
                .filter(|row| row.first() == Some(&"kubevirt.io/v1") && row.get(1) == Some(&name))
                .filter_map(|row| row.get(2).copied())
                .filter(|field| !field.starts_with('('))
                .collect();
            assert!(!listed.is_empty(), "{name}");
            for field in listed {
                assert!(fields.contains(&field), "{name}: {field}");
            }
        };
        check("StartOptions", StartOptions::FIELDS);
        check("StopOptions", StopOptions::FIELDS);
        check("RestartOptions", RestartOptions::FIELDS);
        check("PauseOptions", PauseOptions::FIELDS);
        check("UnpauseOptions", UnpauseOptions::FIELDS);
        check("EvacuateCancelOptions", EvacuateCancelOptions::FIELDS);
        check("ObjectGraphOptions", ObjectGraphOptions::FIELDS);
    }
}
