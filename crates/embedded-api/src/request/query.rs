//! The query parameters of the API.

use std::time::Duration;

use apimachinery::{
    GroupKind, Reason, Status, Violation,
    selector::{FieldSelector, LabelSelector},
};
use axum::extract;
use http::{Method, Uri};

use crate::error::ApiError;

/// How to treat fields that the schema does not declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The parsed parameters. A verb ignores parameters that it does not use.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are flags of the API, one to one"
)]
pub(crate) struct Query {
    pub watch: bool,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub limit: Option<usize>,
    pub continues: Option<String>,
    /// None when absent, else the text: `0` has a special meaning.
    pub resource_version: Option<u64>,
    pub resource_version_match: Option<String>,
    pub timeout: Option<Duration>,
    pub bookmarks: bool,
    pub initial_events: bool,
    pub dry_run: bool,
    pub field_manager: Option<String>,
    pub field_validation: FieldValidation,
    pub force: bool,
    pub grace_period: Option<u64>,
    pub propagation_policy: Option<String>,
    pub include_object: Option<String>,
    pub table: bool,
}

impl Query {
    /// No parameters at all.
    pub(crate) fn none() -> Self {
        Self {
            watch: false,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            limit: None,
            continues: None,
            resource_version: None,
            resource_version_match: None,
            timeout: None,
            bookmarks: false,
            initial_events: false,
            dry_run: false,
            field_manager: None,
            field_validation: FieldValidation::Ignore,
            force: false,
            grace_period: None,
            propagation_policy: None,
            include_object: None,
            table: false,
        }
    }

    pub(crate) fn parse(method: &Method, uri: &Uri) -> Result<Self, ApiError> {
        let invalid_number = |why: String| ApiError::from(Status::bad_request(why));
        let options = match *method {
            Method::POST => "CreateOptions",
            Method::PUT => "UpdateOptions",
            Method::PATCH => "PatchOptions",
            Method::DELETE => "DeleteOptions",
            _ => "ListOptions",
        };
        let pairs = pairs(uri)?;
        let text = |key: &str| {
            pairs
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.as_str())
        };
        let flag = |key: &str| matches!(text(key), Some("" | "1" | "true" | "True" | "TRUE"));
        let number = |key: &str| match text(key) {
            None | Some("") => Ok(None),
            Some(value) => value.parse::<i64>().map(Some).map_err(|_| {
                invalid_number(format!(
                    "strconv.ParseInt: parsing {value:?}: invalid syntax"
                ))
            }),
        };
        let limit = number("limit")?.and_then(|limit| usize::try_from(limit).ok());
        let seconds = |key: &str| {
            let found = number(key)?.map(|seconds| u64::try_from(seconds).unwrap_or(0));
            Ok::<_, ApiError>(found)
        };
        let watch = flag("watch");
        check_match(
            text("resourceVersion"),
            text("resourceVersionMatch"),
            &|key| flag(key),
        )?;
        Ok(Self {
            watch,
            labels: LabelSelector::parse(text("labelSelector").unwrap_or_default())?,
            fields: FieldSelector::parse(text("fieldSelector").unwrap_or_default())?,
            limit: limit.filter(|limit| *limit > 0),
            continues: text("continue")
                .filter(|token| !token.is_empty())
                .map(ToOwned::to_owned),
            resource_version: version(text("resourceVersion")).map_err(|why| {
                if watch {
                    Status::new(Reason::Unknown, why)
                } else {
                    Status::bad_request(format!("invalid resource version: {why}"))
                }
            })?,
            resource_version_match: text("resourceVersionMatch").map(ToOwned::to_owned),
            timeout: seconds("timeoutSeconds")?.map(Duration::from_secs),
            bookmarks: flag("allowWatchBookmarks"),
            initial_events: flag("sendInitialEvents"),
            dry_run: dry_run(&pairs, options)?,
            field_manager: text("fieldManager")
                .filter(|m| !m.is_empty())
                .map(ToOwned::to_owned),
            field_validation: match text("fieldValidation") {
                None | Some("" | "Warn") => FieldValidation::Warn,
                Some("Ignore") => FieldValidation::Ignore,
                Some("Strict") => FieldValidation::Strict,
                Some(other) => {
                    let known = ["", "Ignore", "Strict", "Warn"];
                    let wrong = Violation::not_supported("fieldValidation", other, known);
                    return Err(invalid(options, wrong).into());
                }
            },
            force: flag("force"),
            grace_period: number("gracePeriodSeconds")?.map(grace),
            propagation_policy: text("propagationPolicy").map(ToOwned::to_owned),
            include_object: text("includeObject").map(ToOwned::to_owned),
            table: text("as") == Some("Table"),
        })
    }
}

/// Every parameter, unparsed.
pub(crate) fn pairs(uri: &Uri) -> Result<Vec<(String, String)>, ApiError> {
    extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map(|extract::Query(pairs)| pairs)
        .map_err(|error| Status::bad_request(error.body_text()).into())
}

/// 422 about options, which have no name.
pub(crate) fn invalid(options: &str, wrong: Violation) -> Status {
    let kind = GroupKind {
        group: "meta.k8s.io",
        kind: options,
    };
    Status::invalid(kind, "", &[wrong])
}

/// A negative grace period counts as the shortest one.
pub(crate) fn grace(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(1)
}

fn version(text: Option<&str>) -> Result<Option<u64>, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

/// `resourceVersionMatch` is valid only with certain other parameters.
fn check_match(
    version: Option<&str>,
    matched: Option<&str>,
    flag: &dyn Fn(&str) -> bool,
) -> Result<(), ApiError> {
    let field = "resourceVersionMatch";
    let wrong = match matched.unwrap_or_default() {
        "" if flag("sendInitialEvents") => Some(Violation::forbidden(
            field,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        "Exact" | "NotOlderThan" if flag("sendInitialEvents") => None,
        "Exact" | "NotOlderThan" if version.is_none_or(str::is_empty) => {
            Some(Violation::forbidden(
                field,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ))
        }
        "" | "Exact" | "NotOlderThan" => None,
        other => {
            let known = ["Exact", "NotOlderThan", ""];
            Some(Violation::not_supported(field, other, known))
        }
    };
    wrong.map_or(Ok(()), |wrong| Err(invalid("ListOptions", wrong).into()))
}

fn dry_run(pairs: &[(String, String)], options: &str) -> Result<bool, ApiError> {
    let values: Vec<&str> = pairs
        .iter()
        .filter(|(name, _)| name == "dryRun")
        .map(|(_, value)| value.as_str())
        .collect();
    if values.iter().any(|value| *value != "All") {
        let wrong = Violation::not_supported("dryRun", values, ["All"]);
        return Err(invalid(options, wrong).into());
    }
    Ok(!values.is_empty())
}
