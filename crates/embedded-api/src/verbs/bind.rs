//! Binding of a pod to a node, and eviction.

use apimachinery::{GroupResource, Status, meta};
use axum::{body::Body, response::Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Call, Live, delete,
    read::{self, json_response},
};
use crate::{
    admission::{self, Operation, Review},
    api::Api,
    disruption,
    error::ApiError,
    request::Payload,
};

/// Assigns an unassigned pod to a node.
pub(crate) async fn bind(
    api: &Api,
    call: &mut Call,
    payload: &Payload,
) -> Result<Response, ApiError> {
    let binding = payload.value()?;
    let node = binding["target"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if node.is_empty() {
        return Err(Status::bad_request("target.name is required").into());
    }
    call.subresource = None;
    let live = Live::shown(api, &read::load(api, call, call.name()).await?, &call.kind).await?;
    let resource = GroupResource {
        group: "",
        resource: "pods/binding",
    };
    let refuse = |why: &str| Status::conflict_because(resource, call.name(), why);
    if let Some(uid) = binding["metadata"]["uid"].as_str()
        && uid != meta::uid(&live.object)
    {
        let stored = meta::uid(&live.object);
        return Err(Status::uid_mismatch(resource, call.name(), uid, stored).into());
    }
    if meta::is_deleting(&live.object) {
        let why = format!(
            "pod {} is being deleted, cannot be assigned to a host",
            call.name()
        );
        return Err(refuse(&why).into());
    }
    if let Some(taken) = live.object["spec"]["nodeName"]
        .as_str()
        .filter(|name| !name.is_empty())
    {
        let why = format!(
            "pod {} is already assigned to node \"{taken}\"",
            call.name()
        );
        return Err(refuse(&why).into());
    }
    let mut pod = live.object.clone();
    pod["spec"]["nodeName"] = node.into();
    set_scheduled(&mut pod, &meta::format_time(api.clock.now()));
    super::write::put(api, call, &live, pod).await?;
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                      "status": "Success", "code": 201});
    Ok(json_response(
        StatusCode::CREATED,
        Body::from(done.to_string()),
    ))
}

fn set_scheduled(pod: &mut Value, now: &str) {
    let mut conditions = match pod["status"]["conditions"].take() {
        Value::Array(conditions) => conditions,
        _ => Vec::new(),
    };
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    }));
    pod["status"]["conditions"] = Value::Array(conditions);
}

/// A deletion that webhooks and disruption budgets may delay.
pub(crate) async fn evict(
    api: &Api,
    mut call: Call,
    payload: &Payload,
) -> Result<Response, ApiError> {
    let eviction = payload.value()?;
    let wanted = &eviction["deleteOptions"];
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let options = delete::Options {
        grace_period: wanted["gracePeriodSeconds"].as_u64(),
        uid: text(&wanted["preconditions"]["uid"]),
        resource_version: text(&wanted["preconditions"]["resourceVersion"]),
        propagation: None,
    };
    let review = Review {
        operation: Operation::Create,
        old: None,
        dry_run: call.query.dry_run,
    };
    admission::validate(api, &call, &review, &eviction, &mut Vec::new()).await?;
    call.subresource = None;
    let name = call.name().to_owned();
    let pod = Live::shown(api, &read::load(api, &call, &name).await?, &call.kind).await?;
    if call.query.dry_run {
        disruption::check(api, &pod.object).await?;
    } else {
        disruption::take(api, &pod.object).await?;
    }
    Box::pin(delete::delete_named(api, &call, &name, &options)).await?;
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                      "status": "Success", "code": 201});
    Ok(json_response(
        StatusCode::CREATED,
        Body::from(done.to_string()),
    ))
}
