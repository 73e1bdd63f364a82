//! Reviews: questions that are answered and not stored.
//!
//! There are no roles yet: who is authenticated may do everything.

use axum::{body::Body, response::Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, prepare, read::json_response};
use crate::{
    error::ApiError,
    request::{Format, Payload},
};

pub(crate) fn is_review(call: &Call) -> bool {
    matches!(
        call.kind.group.as_str(),
        "authentication.k8s.io" | "authorization.k8s.io"
    )
}

pub(crate) fn answer(call: &Call, payload: &Payload) -> Result<Response, ApiError> {
    // The answer does not depend on the question, so one that we cannot read is answered as well.
    let mut review = match payload.format {
        Format::Protobuf => {
            json!({"apiVersion": call.kind.api_version(), "kind": call.kind.kind, "spec": {}})
        }
        _ => payload.value()?,
    };
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
