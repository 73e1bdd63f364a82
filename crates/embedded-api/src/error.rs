//! Errors as the `Status` objects that clients expect.
//!
//! Invariant: the only place that converts this crate's errors into HTTP responses.

use std::fmt;

use apimachinery::{GroupResource, Reason, Status, patch::PatchError, selector::SelectorError};
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{encode::OwnJson, store::StoreError, verbs};

/// An error response.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Kind>, Vec<String>);

#[derive(Debug, Clone)]
enum Kind {
    Status(Status),
    /// A `Status` built by another server.
    Foreign(Value),
}

impl ApiError {
    fn of(kind: Kind) -> Self {
        Self(Box::new(kind), Vec::new())
    }

    /// Adds warnings for the client, which are sent with errors too.
    #[must_use]
    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.1.splice(0..0, warnings);
        self
    }

    /// A feature that this server does not implement.
    pub fn not_implemented(feature: &str) -> Self {
        Self::foreign(501, "NotImplemented", feature)
    }

    /// A `Status` with the message of another server, e.g. of an admission webhook.
    pub fn foreign(code: u16, reason: &str, message: &str) -> Self {
        Self::of(Kind::Foreign(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        })))
    }

    /// A complete `Status` from another server.
    pub fn from_value(status: Value) -> Self {
        Self::of(Kind::Foreign(status))
    }

    /// A store error about one object.
    pub fn about(error: StoreError, resource: GroupResource<'_>, name: &str) -> Self {
        match error {
            StoreError::Conflict => Status::conflict(resource, name).into(),
            StoreError::Exists => Status::already_exists(resource, name).into(),
            other => other.into(),
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    pub fn is_conflict(&self) -> bool {
        matches!(&*self.0, Kind::Status(status) if status.reason() == Reason::Conflict)
    }

    /// Whether an object of that name exists already.
    pub fn is_taken(&self) -> bool {
        matches!(&*self.0, Kind::Status(status) if status.reason() == Reason::AlreadyExists)
    }

    /// Whether the `Status` has no reason, as some of kube-apiserver's.
    pub(crate) fn is_without_reason(&self) -> bool {
        matches!(&*self.0, Kind::Status(status) if status.reason() == Reason::Unknown)
    }

    pub fn code(&self) -> u16 {
        match &*self.0 {
            Kind::Status(status) => status.code(),
            Kind::Foreign(value) => value["code"]
                .as_u64()
                .and_then(|code| u16::try_from(code).ok())
                .unwrap_or(500),
        }
    }

    pub fn to_value(&self) -> Value {
        match &*self.0 {
            Kind::Status(status) => status.to_value(),
            Kind::Foreign(value) => value.clone(),
        }
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        Self::of(Kind::Status(status))
    }
}

impl From<SelectorError> for ApiError {
    fn from(error: SelectorError) -> Self {
        error.to_status().into()
    }
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        error.to_status().into()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Compacted { wanted, oldest } => {
                Status::too_old_resource_version(wanted, oldest).into()
            }
            StoreError::Future { wanted, latest } => {
                Status::too_large_resource_version(wanted, latest).into()
            }
            StoreError::DiskFull => {
                tracing::error!("the disk that holds the API's database is full");
                Status::new(
                    Reason::InternalError,
                    "the disk that holds the API's database is full: free space, then retry",
                )
                .into()
            }
            StoreError::ReadOnly => {
                tracing::error!("the file system that holds the API's database is read-only");
                Status::new(
                    Reason::InternalError,
                    "the file system that holds the API's database is read-only: look for errors of its \
                     disk on the host, mount it for writing, then retry; guests keep running",
                )
                .into()
            }
            StoreError::LogFull => {
                tracing::error!("the write-ahead log of the API's database is full");
                Status::service_unavailable(
                    "the write-ahead log of the API's database is full: it is emptied once no process reads \
                     an old state of the database: end a `ferrovirt backup` that does not end; if there is none, \
                     the log of this server says why the database cannot take it",
                )
                .into()
            }
            StoreError::Conflict => {
                Status::new(Reason::Conflict, "the object has been modified").into()
            }
            other => {
                let reason = other.reason();
                tracing::error!(
                    error = &other as &dyn std::error::Error,
                    %reason,
                    "store failed"
                );
                Status::internal(format!("{other}: {reason}")).into()
            }
        }
    }
}

impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        Status::internal(error).into()
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Status(status) => status.fmt(f),
            Kind::Foreign(value) => f.write_str(value["message"].as_str().unwrap_or_default()),
        }
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.to_value().to_string()));
        *response.status_mut() =
            StatusCode::from_u16(self.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response.extensions_mut().insert(OwnJson);
        if let Kind::Status(status) = &*self.0
            && let Some(seconds) = status.retry_after_seconds()
        {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        verbs::warn(response, &self.1)
    }
}
