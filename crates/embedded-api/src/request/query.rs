//! The query parameters of the API.

use std::time::Duration;

use apimachinery::{
    Status,
    selector::{FieldSelector, LabelSelector},
};
use axum::extract;
use http::Uri;

use crate::error::ApiError;

/// What to do about fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The parameters, parsed. Those that a verb does not use have no effect.
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
    /// None when absent, else the text: `0` has a meaning of its own.
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

    pub(crate) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let bad = |why: String| ApiError::from(Status::bad_request(why));
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
            Some(value) => value
                .parse::<u64>()
                .map(Some)
                .map_err(|_| bad(format!("invalid value for {key}: {value:?} is no number"))),
        };
        let limit = number("limit")?.filter(|limit| *limit > 0);
        Ok(Self {
            watch: flag("watch"),
            labels: LabelSelector::parse(text("labelSelector").unwrap_or_default())?,
            fields: FieldSelector::parse(text("fieldSelector").unwrap_or_default())?,
            limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            continues: text("continue")
                .filter(|token| !token.is_empty())
                .map(ToOwned::to_owned),
            resource_version: number("resourceVersion")?,
            resource_version_match: text("resourceVersionMatch").map(ToOwned::to_owned),
            timeout: number("timeoutSeconds")?.map(Duration::from_secs),
            bookmarks: flag("allowWatchBookmarks"),
            initial_events: flag("sendInitialEvents"),
            dry_run: dry_run(&pairs)?,
            field_manager: text("fieldManager")
                .filter(|m| !m.is_empty())
                .map(ToOwned::to_owned),
            field_validation: match text("fieldValidation") {
                None | Some("" | "Warn") => FieldValidation::Warn,
                Some("Ignore") => FieldValidation::Ignore,
                Some("Strict") => FieldValidation::Strict,
                Some(other) => {
                    return Err(bad(format!("invalid value for fieldValidation: {other:?}")));
                }
            },
            force: flag("force"),
            grace_period: number("gracePeriodSeconds")?,
            propagation_policy: text("propagationPolicy").map(ToOwned::to_owned),
            include_object: text("includeObject").map(ToOwned::to_owned),
            table: text("as") == Some("Table"),
        })
    }
}

/// Every parameter as it came.
pub(crate) fn pairs(uri: &Uri) -> Result<Vec<(String, String)>, ApiError> {
    extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map(|extract::Query(pairs)| pairs)
        .map_err(|error| Status::bad_request(error.body_text()).into())
}

fn dry_run(pairs: &[(String, String)]) -> Result<bool, ApiError> {
    let mut asked = false;
    for (_, value) in pairs.iter().filter(|(name, _)| name == "dryRun") {
        if value != "All" {
            let why = format!("invalid value for dryRun: {value:?}, supported: \"All\"");
            return Err(Status::bad_request(why).into());
        }
        asked = true;
    }
    Ok(asked)
}
