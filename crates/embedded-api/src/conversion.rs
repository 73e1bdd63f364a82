//! Conversion of objects to another version: by their label, or by the webhook of their definition.
//!
//! Invariant: a webhook changes nothing but labels and annotations of the metadata; what else it
//! returns there is ignored.

use std::time::Duration;

use apimachinery::{Status, meta};
use serde_json::{Value, json};

use crate::{
    admission,
    api::Api,
    error::ApiError,
    registry::{Origin, Served, convert},
};

/// As kube-apiserver.
const PATIENCE: Duration = Duration::from_secs(30);

/// The object in the version that is stored.
pub(crate) async fn to_storage(api: &Api, kind: &Served, object: Value) -> Result<Value, ApiError> {
    convert(api, kind, object, &kind.storage_api_version).await
}

/// The object in this version.
pub(crate) async fn convert(
    api: &Api,
    kind: &Served,
    mut object: Value,
    api_version: &str,
) -> Result<Value, ApiError> {
    match webhook(kind) {
        Some(webhook) if meta::api_version(&object) != api_version => {
            call(api, webhook, object, api_version).await
        }
        _ => {
            convert::to_version(&mut object, api_version);
            Ok(object)
        }
    }
}

fn webhook(kind: &Served) -> Option<&Value> {
    match &kind.origin {
        Origin::Custom(custom) => custom.conversion.as_ref(),
        Origin::BuiltIn(_) => None,
    }
}

async fn call(
    api: &Api,
    webhook: &Value,
    object: Value,
    api_version: &str,
) -> Result<Value, ApiError> {
    let failed = |why: String| {
        let (from, kind) = (meta::api_version(&object), meta::kind(&object));
        Status::internal(format!(
            "conversion webhook for {from}, Kind={kind} failed: {why}"
        ))
    };
    let uid = uuid::Uuid::new_v4().to_string();
    let review = json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": [object]},
    });
    let posted = tokio::time::timeout(PATIENCE, admission::post(api, webhook, &review, PATIENCE));
    let answer = match api.fairness.without_seat(posted).await? {
        Ok(answer) => answer.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed("context deadline exceeded".to_owned()).into()),
    };
    converted(&object, &answer["response"], &uid, api_version).map_err(|why| failed(why).into())
}

/// The converted object of a response, with the metadata of the original.
fn converted(
    original: &Value,
    response: &Value,
    uid: &str,
    api_version: &str,
) -> Result<Value, String> {
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let found = response["uid"].as_str().unwrap_or_default();
    if found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        let status = result["status"].as_str().unwrap_or_default();
        return Err(match result["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("response.result.status was '{status}', not 'Success'"),
        });
    }
    let mut object = match response["convertedObjects"].as_array().map(Vec::as_slice) {
        Some([object]) => object.clone(),
        Some(many) => return Err(format!("returned {} objects, expected 1", many.len())),
        None => return Err("returned 0 objects, expected 1".to_owned()),
    };
    for (what, expected, found) in [
        ("groupVersion", api_version, meta::api_version(&object)),
        ("kind", meta::kind(original), meta::kind(&object)),
        ("name", meta::name(original), meta::name(&object)),
        (
            "namespace",
            meta::namespace(original),
            meta::namespace(&object),
        ),
        ("UID", meta::uid(original), meta::uid(&object)),
    ] {
        if expected != found {
            return Err(format!(
                "returned invalid object: invalid {what} (expected {expected}, received {found})"
            ));
        }
    }
    let mut metadata = original["metadata"].clone();
    if let Value::Object(fields) = &mut metadata {
        for field in ["labels", "annotations"] {
            match object["metadata"]
                .get(field)
                .filter(|value| !value.is_null())
            {
                Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
                None => drop(fields.shift_remove(field)),
            }
        }
    }
    object["metadata"] = metadata;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_checked_and_metadata_is_restored() {
        let original = json!({"apiVersion": "e.com/v1", "kind": "Widget", "spec": {"a": 1},
            "metadata": {"name": "w", "uid": "u", "finalizers": ["f"], "labels": {"a": "b"}}});
        let good = json!({"apiVersion": "e.com/v2", "kind": "Widget", "spec": {"b": 1},
            "metadata": {"name": "w", "uid": "u", "labels": {"c": "d"}, "finalizers": []}});
        let response = |object: &Value| json!({"uid": "x", "result": {"status": "Success"}, "convertedObjects": [object]});
        let found = converted(&original, &response(&good), "x", "e.com/v2").unwrap();
        assert_eq!(found["spec"], json!({"b": 1}));
        assert_eq!(found["metadata"]["labels"], json!({"c": "d"}));
        assert_eq!(found["metadata"]["finalizers"], json!(["f"]));

        let mut other = good.clone();
        other["metadata"]["name"] = "v".into();
        for (wrong, expected) in [
            (Value::Null, "no response provided"),
            (json!({"uid": "y"}), "expected response.uid"),
            (
                json!({"uid": "x", "result": {"status": "Failure", "message": "no"}}),
                "no",
            ),
            (
                json!({"uid": "x", "result": {"status": "Failure"}}),
                "not 'Success'",
            ),
            (
                json!({"uid": "x", "result": {"status": "Success"}, "convertedObjects": []}),
                "0 objects",
            ),
            (response(&original), "invalid groupVersion"),
            (response(&other), "invalid name"),
        ] {
            let why = converted(&original, &wrong, "x", "e.com/v2").unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
