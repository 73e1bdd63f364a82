//! The `AdmissionReview` of a write.

use apimachinery::{meta, resource::join_api_version};
use serde_json::{Value, json};

use super::{Operation, Review};
use crate::{
    registry::convert,
    verbs::{Call, reviews},
};

pub(super) fn request(call: &Call, review: &Review<'_>, object: &Value, webhook: &Value) -> Value {
    let kind = &call.kind;
    let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let gvr = json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
    // A webhook with a rule for another version of the kind gets that version.
    let versions = || {
        let rules = webhook["rules"].as_array().into_iter().flatten();
        rules.flat_map(|rule| rule["apiVersions"].as_array().into_iter().flatten())
    };
    let known = versions().any(|v| v == "*" || v == kind.version.as_str());
    let converted = |object: &Value| {
        let mut object = object.clone();
        if let (false, Some(version)) = (known, versions().find_map(Value::as_str)) {
            let other = join_api_version(&kind.group, version);
            convert::to_version(&mut object, &other);
        }
        object
    };
    let named = if object.is_null() {
        review.old.unwrap_or(object)
    } else {
        object
    };
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uuid::Uuid::new_v4().to_string(),
            "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
            "subResource": call.subresource, "requestSubResource": call.subresource,
            "name": meta::name(named), "namespace": call.namespace,
            "operation": review.operation.as_str(),
            "userInfo": reviews::user_info(&call.identity),
            "object": converted(object),
            "oldObject": review.old.map(converted),
            "dryRun": review.dry_run,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": options_kind(review.operation)},
        },
    })
}

fn options_kind(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    }
}
