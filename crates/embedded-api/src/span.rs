//! One tracing span per API request, and the log line of its response.
//!
//! Invariants: a disabled span allocates nothing; neither queries nor bodies are recorded, since
//! they may contain secrets.

use apimachinery::GroupResource;
use axum::{extract::Request, response::Response};
use tokio::time::Instant;
use tracing::{
    Span,
    field::{Empty, display},
};

use crate::{auth::Identity, error::ApiError, verbs::Call};

/// The header with the client's id of the request, as in kube-apiserver's audit log.
const AUDIT_ID: &str = "audit-id";
/// Longer ids are truncated.
const MAX_ID: usize = 64;

/// The span of a request, with the fields known before authentication.
pub(crate) fn new(request: &Request) -> Span {
    let span = tracing::info_span!(
        "request",
        method = request.method().as_str(),
        path = request.uri().path(),
        request_id = Empty,
        user = Empty,
        resource = Empty,
        subresource = Empty,
        namespace = Empty,
        object = Empty,
    );
    if !span.is_disabled() {
        record_id(&span, request);
    }
    span
}

fn record_id(span: &Span, request: &Request) {
    let sent = request.headers().get(AUDIT_ID);
    match sent.and_then(|id| id.to_str().ok()) {
        Some(id) => span.record("request_id", id.get(..MAX_ID).unwrap_or(id)),
        None => span.record("request_id", display(uuid::Uuid::new_v4())),
    };
}

/// Adds the authenticated user to the current span.
pub(crate) fn record_user(identity: &Identity) {
    Span::current().record("user", identity.user.as_str());
}

/// Adds the requested resource to the current span.
pub(crate) fn record_call(call: &Call) {
    let span = Span::current();
    let resource: GroupResource<'_> = call.kind.resource();
    span.record("resource", display(resource));
    let parts = [
        ("subresource", call.subresource.as_deref()),
        ("namespace", Some(call.namespace.as_str())),
        ("object", call.name.as_deref()),
    ];
    for (field, value) in parts {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            span.record(field, value);
        }
    }
}

/// Marks a response that reports a failure of this server.
#[derive(Debug, Clone)]
struct Failure(ApiError);

/// The response to a failed request.
pub(crate) fn respond(error: ApiError) -> Response {
    // kube-apiserver reports some invalid requests as a 500 without a reason.
    let is_failure = error.code() >= 500 && !error.is_without_reason();
    let failure = is_failure.then(|| Failure(error.clone()));
    let mut response = axum::response::IntoResponse::into_response(error);
    if let Some(failure) = failure {
        response.extensions_mut().insert(failure);
    }
    response
}

/// Logs code and duration of a response in its span: failures of this server as warnings, all
/// others, including those of proxied servers, at debug level.
pub(crate) fn log_response(span: &Span, response: &mut Response, started: Instant) {
    let _guard = span.enter();
    let code = response.status().as_u16();
    let duration = started.elapsed();
    if let Some(Failure(error)) = response.extensions_mut().remove::<Failure>() {
        tracing::warn!(code, ?duration, %error, "request failed");
    } else {
        tracing::debug!(code, ?duration, "request served");
    }
}
