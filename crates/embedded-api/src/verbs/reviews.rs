//! Reviews: questions that are answered and not stored.
//!
//! There are no roles yet: who is authenticated may do everything.

use axum::{body::Body, response::Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, prepare, read::json_response};
use crate::{api::Api, error::ApiError, request::Payload};

pub(crate) fn is_review(call: &Call) -> bool {
    matches!(
        call.kind.group.as_str(),
        "authentication.k8s.io" | "authorization.k8s.io"
    )
}

pub(crate) fn answer(_: &Api, call: &Call, payload: &Payload) -> Result<Response, ApiError> {
    let mut review = payload.value()?;
    prepare::identify(call, &mut review)?;
    review["status"] = status(call);
    Ok(json_response(
        StatusCode::CREATED,
        Body::from(review.to_string()),
    ))
}

fn status(call: &Call) -> Value {
    match call.kind.plural.as_str() {
        "selfsubjectreviews" => json!({
            "userInfo": {"username": call.identity.user, "groups": call.identity.groups},
        }),
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        _ => json!({"allowed": true, "reason": "everybody who is authenticated may do everything"}),
    }
}
