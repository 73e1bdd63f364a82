//! The `AdmissionReview` of a write.

use apimachinery::{meta, resource::join_api_version};
use serde_json::{Value, json};

use super::{Operation, Review};
use crate::{
    api::Api,
    conversion,
    error::ApiError,
    verbs::{Call, reviews},
};

pub(super) async fn request(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    webhook: &Value,
) -> Result<Value, ApiError> {
    let kind = &call.kind;
    // What is sent on a connection is the options of the stream.
    let shown_kind = match review.operation {
        Operation::Connect => meta::kind(object),
        _ => &kind.kind,
    };
    let gvk = json!({"group": kind.group, "version": kind.version, "kind": shown_kind});
    let gvr = json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
    // A webhook with a rule for another version of the kind gets that version.
    let versions = || {
        let rules = webhook["rules"].as_array().into_iter().flatten();
        rules.flat_map(|rule| rule["apiVersions"].as_array().into_iter().flatten())
    };
    let known = versions().any(|v| v == "*" || v == kind.version.as_str());
    let converted = async |object: &Value| match versions().find_map(Value::as_str) {
        Some(version) if !known && object.is_object() => {
            let other = join_api_version(&kind.group, version);
            conversion::convert(api, kind, object.clone(), &other).await
        }
        _ => Ok(object.clone()),
    };
    let old = match review.old {
        Some(old) => Some(converted(old).await?),
        None => None,
    };
    let new = converted(object).await?;
    let named = if object.is_null() {
        review.old.unwrap_or(object)
    } else {
        object
    };
    let name = match review.operation {
        Operation::Connect => call.name(),
        _ => meta::name(named),
    };
    Ok(json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uuid::Uuid::new_v4().to_string(),
            "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
            "subResource": call.subresource, "requestSubResource": call.subresource,
            "name": name, "namespace": call.namespace,
            "operation": review.operation.as_str(),
            "userInfo": reviews::user_info(&call.identity),
            "object": new,
            "oldObject": old,
            "dryRun": review.dry_run,
            "options": options(review.operation),
        },
    }))
}

fn options(operation: Operation) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    json!({"apiVersion": "meta.k8s.io/v1", "kind": kind})
}
