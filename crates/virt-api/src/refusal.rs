//! Errors of requests, as a Kubernetes `Status`.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The object of the request: its resource and its name.
    object: Option<(String, String)>,
    cause: Option<Box<Cause>>,
}

/// The field that is the cause of a refusal, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cause {
    field: &'static str,
    why: String,
}

impl Refusal {
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The object, or what is made of it, is invalid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub(crate) fn not_found(kind: &str, name: &str) -> Self {
        let message = format!("{kind}.kubevirt.io {name:?} not found");
        Self {
            object: Some((kind.to_owned(), name.to_owned())),
            ..Self::new(StatusCode::NOT_FOUND, "NotFound", message)
        }
    }

    /// An object that another one names does not exist.
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        )
    }

    pub(crate) fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(crate) fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            object: None,
            cause: None,
        }
    }

    /// The same as an internal error.
    pub(crate) fn into_internal(self) -> Self {
        Self {
            cause: self.cause,
            ..Self::internal(self.message)
        }
    }

    /// Names the field that is the cause. It goes into the details, as tools compare the message of some
    /// refusals as a whole.
    pub(crate) fn because(mut self, field: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        self.cause = Some(Box::new(Cause { field, why }));
        self
    }

    /// Adds the object to the message of a conflict, as Kubernetes does.
    pub(crate) fn about(mut self, kind: &str, name: &str) -> Self {
        const PREFIX: &str = "Operation cannot be fulfilled on";
        if self.code == StatusCode::CONFLICT && self.object.is_none() {
            if !self.message.starts_with(PREFIX) {
                self.message = format!("{PREFIX} {kind}.kubevirt.io {name:?}: {}", self.message);
            }
            self.object = Some((kind.to_owned(), name.to_owned()));
        }
        self
    }

    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some((kind, name)) = &self.object {
            status["details"] = json!({"name": name, "group": "kubevirt.io", "kind": kind});
        }
        if let Some(cause) = &self.cause {
            let Cause { field, why } = &**cause;
            let cause = json!({"reason": "FieldValueInvalid", "message": why, "field": field});
            status["details"]["causes"] = json!([cause]);
        }
        status
    }
}

impl From<kube::Error> for Refusal {
    fn from(err: kube::Error) -> Self {
        match err {
            kube::Error::Api(status) => {
                let code = StatusCode::from_u16(status.code);
                let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let reason = match code {
                    StatusCode::CONFLICT => "Conflict",
                    StatusCode::NOT_FOUND => "NotFound",
                    StatusCode::FORBIDDEN => "Forbidden",
                    StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
                    _ => "InternalError",
                };
                Self::new(code, reason, status.message.clone())
            }
            err => Self::internal(format!(
                "call the API server: {}",
                error_chain::error_chain(&err)
            )),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.code, Json(self.status())).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_names_its_object_once() {
        let refusal = Refusal::conflict("VM is already running").about("virtualmachine", "tiny");
        let again = refusal.clone().about("virtualmachine", "tiny");
        assert_eq!(again, refusal);
        let status = refusal.status();
        assert_eq!(
            status["message"],
            "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"tiny\": \
             VM is already running"
        );
        let details = json!({"name": "tiny", "group": "kubevirt.io", "kind": "virtualmachine"});
        assert_eq!(status["details"], details);
    }

    #[test]
    fn only_conflicts_and_missing_objects_have_details() {
        let refusal = Refusal::bad_request("no").about("virtualmachine", "tiny");
        assert_eq!(refusal.message, "no");
        assert_eq!(refusal.status().get("details"), None);
        let missing = Refusal::not_found("virtualmachine", "tiny").status();
        assert_eq!(missing["details"]["name"], "tiny");
    }
}
