//! The `scale` subresource of custom kinds: replicas in a generic format.

use apimachinery::{GroupKind, Status, Violation, meta, patch};
use axum::{body::Body, response::Response};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    Call, Live,
    read::{self, json_response},
    update::ATTEMPTS,
    write::{self, Ownership},
};
use crate::{
    api::Api,
    error::ApiError,
    registry::{Origin, Scale},
    request::{Format, Payload},
};

pub(crate) async fn serve(
    api: &Api,
    call: &Call,
    method: &Method,
    payload: &Payload,
) -> Result<Response, ApiError> {
    let Origin::Custom(custom) = &call.kind.origin else {
        return Err(Status::no_such_resource().into());
    };
    let Some(paths) = &custom.scale else {
        return Err(Status::not_found(call.kind.resource(), call.name()).into());
    };
    let mut attempt = 1;
    loop {
        let live = Live::shown(api, &read::load(api, call, call.name()).await?, &call.kind).await?;
        let scale = render(paths, &live.object);
        let wanted = match *method {
            Method::GET => return Ok(answer(&scale)),
            Method::PUT => payload.value()?,
            Method::PATCH => match payload.format {
                Format::JsonPatch => patch::json::apply(&scale, &payload.value()?)?,
                _ => patch::merge::apply(&scale, &payload.value()?),
            },
            _ => {
                let resource = call.kind.resource();
                return Err(Status::method_not_allowed(resource, method.as_str()).into());
            }
        };
        let version = meta::resource_version(&wanted);
        if !version.is_empty() && version != live.revision.to_string() {
            return Err(Status::conflict(call.kind.resource(), call.name()).into());
        }
        let mut object = live.object.clone();
        set(&mut object, &paths.spec_replicas, replicas(&wanted)?)?;
        match Box::pin(write::update(api, call, &live, object, Ownership::Compute)).await {
            // A concurrent write, e.g. of a status. If the client named a version, the next attempt
            // reports the conflict.
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            written => return Ok(answer(&render(paths, &written?.object))),
        }
    }
}

/// Sets the number of replicas in an object, which may be older than the declaration of its path.
fn set(object: &mut Value, path: &[String], replicas: i64) -> Result<(), ApiError> {
    let mut at = object;
    for field in path {
        if !at.is_object() && !at.is_null() {
            let why = format!("the object has no place for .{}", path.join("."));
            return Err(Status::internal(why).into());
        }
        at = &mut at[field.as_str()];
    }
    *at = replicas.into();
    Ok(())
}

/// The desired number of replicas.
fn replicas(scale: &Value) -> Result<i64, ApiError> {
    let wanted = &scale["spec"]["replicas"];
    wanted.as_i64().ok_or_else(|| {
        let why = "spec.replicas must be a number";
        let wrong = Violation::invalid("patch", wanted.clone(), why);
        let nothing = GroupKind {
            group: "",
            kind: "",
        };
        Status::invalid(nothing, "", &[wrong]).into()
    })
}

fn render(paths: &Scale, object: &Value) -> Value {
    let spec = paths
        .spec_replicas
        .iter()
        .fold(object, |at, field| &at[field.as_str()]);
    let status = paths
        .status_replicas
        .first(object)
        .and_then(Value::as_u64)
        .unwrap_or_default();
    let metadata = &object["metadata"];
    let mut out = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": spec.as_u64().unwrap_or_default()},
        "status": {"replicas": status},
    });
    if let Some(selector) = paths.selector.as_ref().and_then(|path| path.first(object)) {
        out["status"]["selector"] = selector.clone();
    }
    out
}

fn answer(scale: &Value) -> Response {
    json_response(StatusCode::OK, Body::from(scale.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_set_where_the_object_has_a_place_for_them() {
        let path = ["spec", "replicas"].map(ToOwned::to_owned);
        for (before, expected) in [
            (json!({}), Some(json!({"spec": {"replicas": 3}}))),
            (
                json!({"spec": {"replicas": 1, "a": 2}}),
                Some(json!({"spec": {"replicas": 3, "a": 2}})),
            ),
            (json!({"spec": "text"}), None),
            (json!({"spec": [1]}), None),
        ] {
            let mut object = before.clone();
            let found = set(&mut object, &path, 3).ok().map(|()| object);
            assert_eq!(found, expected, "{before}");
        }
    }
}
