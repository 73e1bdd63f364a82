//! Errors as Kubernetes `Status` objects, which `virt-api` forwards unchanged.

use std::io;

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use reconcile::Key;
use serde_json::json;

use crate::launcher::CallError;

pub(super) fn error_response(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, Json(status)).into_response()
}

pub(super) fn call_error(error: &CallError) -> Response {
    let (code, reason) = match error {
        CallError::Refused { .. } => (StatusCode::CONFLICT, "Conflict"),
        CallError::NotConnected => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        CallError::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "Timeout"),
        CallError::UnexpectedReply | CallError::TooLarge => {
            (StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
        }
    };
    error_response(code, reason, &error.to_string())
}

pub(super) fn guest_not_found(key: &Key) -> Response {
    let message = format!("guest {key} is not running on this node");
    error_response(StatusCode::NOT_FOUND, "NotFound", &message)
}

/// QEMU creates a guest's sockets when it starts and removes them when it ends, so a missing one
/// means that the guest does not run yet or any more. Clients retry after this error.
pub(super) fn device_error(device: &str, error: &io::Error) -> Response {
    let message = format!("the guest's {device} is not available: {error}");
    let (code, reason) = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            (StatusCode::BAD_REQUEST, "BadRequest")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
    };
    error_response(code, reason, &message)
}
