//! Responses that the server itself makes, in the shape of the API server's errors.

use axum::{body::Body, response::Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::headers;

/// JSON, with the headers of data.
pub(crate) fn json(code: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = code;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    headers::for_data(response.headers_mut());
    response
}

/// A `Status`, so that the page shows all errors alike.
pub(crate) fn error(code: StatusCode, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message, "code": code.as_u16(),
    });
    json(code, &status)
}

/// The tab has no key. The header tells it from a rejection by the API server, of the user's credentials.
pub(crate) fn unauthorized(message: &str) -> Response {
    let mut response = error(StatusCode::UNAUTHORIZED, message);
    let scheme = HeaderValue::from_static("Bearer realm=\"console\"");
    let headers = response.headers_mut();
    headers.insert(header::WWW_AUTHENTICATE, scheme);
    response
}

/// Sends the browser to the page.
pub(crate) fn to_page() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let place = HeaderValue::from_static("/console/");
    response.headers_mut().insert(header::LOCATION, place);
    headers::for_data(response.headers_mut());
    response
}
