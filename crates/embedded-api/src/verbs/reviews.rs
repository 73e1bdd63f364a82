//! Reviews: queries that are answered and not stored.

use apimachinery::{GroupKind, Status, Violation, meta, rbac::Rule};
use axum::{body::Body, response::Response};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{Call, prepare, read::json_response, write};
use crate::{
    access::{self, Attributes, ResourceTarget, Target},
    api::Api,
    auth::Identity,
    error::ApiError,
    registry::Served,
    request::Payload,
    tokens,
};

pub(crate) fn is_review(kind: &Served) -> bool {
    matches!(
        kind.group.as_str(),
        "authentication.k8s.io" | "authorization.k8s.io"
    )
}

pub(crate) async fn answer(
    api: &Api,
    call: &Call,
    payload: &Payload,
) -> Result<Response, ApiError> {
    let mut review = payload.value()?;
    prepare::identify(call, &mut review)?;
    if call.kind.plural != "selfsubjectreviews" {
        check(call, &review)?;
    }
    if let Value::Object(fields) = &mut review {
        // The server's, even if a typed client sends an empty one.
        fields.shift_remove("status");
    }
    let is_about_caller = ["selfsubjectreviews", "selfsubjectrulesreviews"];
    if !is_about_caller.contains(&call.kind.plural.as_str()) {
        write::own(api, call, None, &mut review);
    }
    let now = meta::format_time(api.clock.now());
    let status = match call.kind.plural.as_str() {
        "selfsubjectreviews" => json!({"userInfo": user_info(&call.identity)}),
        "tokenreviews" => token(api, &review["spec"]).await?,
        "selfsubjectrulesreviews" => rules(api, call, &review["spec"]).await?,
        "selfsubjectaccessreviews" => access(api, &call.identity, &review["spec"]).await?,
        _ => access(api, &subject(&review["spec"]), &review["spec"]).await?,
    };
    review["status"] = status;
    match call.kind.plural.as_str() {
        "selfsubjectreviews" => meta::set(&mut review, "creationTimestamp", now),
        "selfsubjectrulesreviews" => review["spec"] = json!({}),
        _ => {}
    }
    Ok(json_response(
        StatusCode::CREATED,
        Body::from(review.to_string()),
    ))
}

/// A user in the format of reviews.
pub(crate) fn user_info(identity: &Identity) -> Value {
    let mut out = Map::new();
    out.insert("username".to_owned(), identity.user.clone().into());
    if !identity.uid.is_empty() {
        out.insert("uid".to_owned(), identity.uid.clone().into());
    }
    out.insert("groups".to_owned(), identity.groups.clone().into());
    if !identity.extra.is_empty() {
        out.insert("extra".to_owned(), json!(identity.extra));
    }
    out.into()
}

/// Rejects malformed reviews.
fn check(call: &Call, review: &Value) -> Result<(), ApiError> {
    let spec = &review["spec"];
    let is_empty = |value: &Value| value.as_str().unwrap_or_default().is_empty();
    let mut wrong = Vec::new();
    match call.kind.plural.as_str() {
        "tokenreviews" => {
            if is_empty(&spec["token"]) {
                let why = "token is required for TokenReview in authentication";
                return Err(Status::bad_request(why).into());
            }
            return Ok(());
        }
        "selfsubjectrulesreviews" => {
            if is_empty(&spec["namespace"]) {
                return Err(Status::bad_request("no namespace on request").into());
            }
            return Ok(());
        }
        _ => {}
    }
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() == path.is_object() {
        let (at, why) = if path.is_object() {
            let why = "cannot be specified in combination with resourceAttributes";
            ("spec.nonResourceAttributes", why)
        } else {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            ("spec.resourceAttributes", why)
        };
        let found = if path.is_object() { path } else { resource };
        wrong.push(Violation::invalid(at, found.clone(), why));
    }
    let is_about_others = call.kind.plural != "selfsubjectaccessreviews";
    let has_no_subject =
        is_empty(&spec["user"]) && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if is_about_others && has_no_subject {
        let why = "at least one of user or group must be specified";
        wrong.push(Violation::invalid("spec.user", "", why));
    }
    if call.kind.plural == "localsubjectaccessreviews" {
        let found = resource["namespace"].as_str().unwrap_or_default();
        if resource.is_object() && found != call.namespace {
            let at = "spec.resourceAttributes.namespace";
            wrong.push(Violation::invalid(
                at,
                found,
                "must match metadata.namespace",
            ));
        }
        if path.is_object() {
            let at = "spec.nonResourceAttributes";
            let why = "disallowed on this kind of request";
            wrong.push(Violation::invalid(at, path.clone(), why));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    // kube-apiserver names no kind here.
    let nothing = GroupKind {
        group: &call.kind.group,
        kind: "",
    };
    Err(Status::invalid(nothing, meta::name(review), &wrong).into())
}

/// The subject of the review.
fn subject(spec: &Value) -> Identity {
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .filter_map(Value::as_str)
            .map(ToOwned::to_owned)
            .collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    Identity {
        user: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra
            .map(|(key, values)| (key.clone(), texts(values)))
            .collect(),
    }
}

async fn access(api: &Api, about: &Identity, spec: &Value) -> Result<Value, ApiError> {
    let resource = &spec["resourceAttributes"];
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let wanted = if resource.is_object() {
        Attributes {
            verb: text(resource, "verb"),
            target: Target::Resource(Box::new(ResourceTarget {
                group: text(resource, "group"),
                resource: text(resource, "resource"),
                subresource: text(resource, "subresource"),
                namespace: text(resource, "namespace"),
                name: text(resource, "name"),
            })),
        }
    } else {
        let path = &spec["nonResourceAttributes"];
        Attributes {
            verb: text(path, "verb"),
            target: Target::Path(text(path, "path")),
        }
    };
    let decision = access::decide(api, about, &wanted).await?;
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    Ok(status)
}

async fn rules(api: &Api, call: &Call, spec: &Value) -> Result<Value, ApiError> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    let rules = access::rules_of(api, &call.identity, namespace).await?;
    let (paths, resources): (Vec<_>, Vec<_>) = rules
        .iter()
        .partition(|rule| !rule.non_resource_urls.is_empty());
    let show =
        |rules: Vec<&Rule>| -> Vec<Value> { rules.into_iter().map(Rule::to_value).collect() };
    Ok(json!({
        "resourceRules": show(resources),
        "nonResourceRules": show(paths),
        "incomplete": false,
    }))
}

async fn token(api: &Api, spec: &Value) -> Result<Value, ApiError> {
    let mut audiences: Vec<String> = spec["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect();
    if audiences.is_empty() {
        audiences.push(tokens::ISSUER.to_owned());
    }
    let token = spec["token"].as_str().unwrap_or_default();
    Ok(match tokens::authenticate(api, token, &audiences).await? {
        Ok(verified) => json!({
            "authenticated": true,
            "user": user_info(&verified.identity),
            "audiences": verified.audiences,
        }),
        Err(why) => json!({"user": {}, "error": format!("invalid bearer token: {why}")}),
    })
}
