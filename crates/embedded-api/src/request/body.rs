//! Bodies of requests: JSON or YAML, of bounded size.

use apimachinery::Status;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;

use super::protobuf;
use crate::error::ApiError;

/// As on a real API server.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// What the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
    JsonPatch,
    MergePatch,
    StrategicMergePatch,
    Apply,
    /// Read for a few kinds.
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
            Format::Protobuf => protobuf::decode(&self.bytes).ok_or_else(unsupported),
            Format::Yaml | Format::Apply => {
                let text = std::str::from_utf8(&self.bytes).map_err(|e| bad(e.to_string()))?;
                // JSON is YAML, but its own parser is quicker and exact.
                match serde_json::from_str(text) {
                    Ok(value) => Ok(value),
                    Err(_) => serde_saphyr::from_str(text).map_err(|e| bad(e.to_string())),
                }
            }
            _ => serde_json::from_slice(&self.bytes).map_err(|e| bad(e.to_string())),
        }
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
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(unsupported()),
    }
}

fn unsupported() -> ApiError {
    Status::unsupported_media_type(&["application/json", "application/yaml"]).into()
}
