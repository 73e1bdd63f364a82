//! The webhooks of data volumes: a user who makes one that copies from another namespace needs the right to copy
//! from there, as with CDI.
//!
//! The first one records in an annotation what is copied; virt-controller copies nothing else. The second one asks for
//! the right. They are registered where Ferrovirt populates data volumes and API servers call virt-api for each:
//! on a single host.
//!
//! **Invariant**: an annotation that names data of another namespace was written by a component, or passed a review of a
//! user who may copy from there, together with the source that is named beside it.

pub(super) mod rights;
pub(super) mod source;

use axum::{
    body::Bytes,
    extract::State,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_view::Subject;
use error_chain::error_chain;
use k8s_openapi::api::authentication::v1::UserInfo;
use kubevirt_api::{annotations::COPY_PERMITTED, data_volume_status::DataVolume};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{read, respond, send};
use crate::{refusal::Refusal, settings::Shared};

/// The path of the annotation in a patch.
const POINTER: &str = "/metadata/annotations/ferrovirt.io~1copy-permitted";

/// Records what a new data volume copies from another namespace.
pub(super) async fn record(State(shared): State<Shared>, body: Bytes) -> Response {
    match recorded(&shared, &body).await {
        Ok(answer) => send(answer),
        Err(refusal) => refusal.into_response(),
    }
}

async fn recorded(shared: &Shared, body: &[u8]) -> Result<Value, Refusal> {
    let review = read(body)?;
    let mut answer = respond(&review, None);
    let request = &review["request"];
    // A component has checked what it writes.
    if request["operation"] != "CREATE" || is_component(shared, request) {
        return Ok(answer);
    }
    let volume = parse(&request["object"])?;
    let own = request["namespace"].as_str().unwrap_or_default();
    let copied = source::find(&shared.client, own, &volume.spec).await?;
    let copied = copied.filter(|copied| copied.namespaces.iter().any(|one| one != own));
    let patch = patch(
        &request["object"],
        copied.as_ref().map(source::Copied::record),
    );
    if patch != json!([]) {
        answer["response"]["patchType"] = "JSONPatch".into();
        answer["response"]["patch"] = STANDARD.encode(patch.to_string()).into();
    }
    Ok(answer)
}

/// The patch that gives an object the annotation, or takes it away.
fn patch(object: &Value, record: Option<String>) -> Value {
    let notes = &object["metadata"]["annotations"];
    let has_it = !notes[COPY_PERMITTED].is_null();
    match record {
        Some(record) if notes.is_object() => {
            json!([{ "op": "add", "path": POINTER, "value": record }])
        }
        Some(record) => json!([{
            "op": "add", "path": "/metadata/annotations", "value": { COPY_PERMITTED: record },
        }]),
        None if has_it => json!([{ "op": "remove", "path": POINTER }]),
        None => json!([]),
    }
}

/// Refuses a data volume that copies what its user must not copy.
pub(super) async fn check(State(shared): State<Shared>, body: Bytes) -> Response {
    match checked(&shared, &body).await {
        Ok(answer) => send(answer),
        Err(refusal) => refusal.into_response(),
    }
}

async fn checked(shared: &Shared, body: &[u8]) -> Result<Value, Refusal> {
    let review = read(body)?;
    let request = &review["request"];
    if is_component(shared, request) {
        return Ok(respond(&review, None));
    }
    let new = parse(&request["object"])?;
    let old = match request["operation"].as_str() {
        Some("UPDATE") => Some(parse(&request["oldObject"])?),
        _ => None,
    };
    let is_old = old.is_some_and(|old| {
        let is_same = permitted(&old) == permitted(&new)
            && old.spec.source == new.spec.source
            && old.spec.source_ref == new.spec.source_ref;
        // A user who creates one may write a time of deletion.
        is_same || old.metadata.deletion_timestamp.is_some()
    });
    if is_old {
        return Ok(respond(&review, None));
    }
    let own = request["namespace"].as_str().unwrap_or_default();
    let user = UserInfo::deserialize(&request["userInfo"]).map_err(|error| malformed(&error))?;
    let subject = Subject::user(user);
    let name = subject.name();
    for namespace in source::namespaces(own, &new.spec, permitted(&new)) {
        if !subject.may_copy(&shared.client, &namespace).await? {
            let message = format!(
                "user {name:?} must not copy disks from namespace {namespace:?}: ask an administrator there \
                 for the right to create datavolumes/source of API group {}; the ClusterRole edit has it",
                DataVolume::GROUP
            );
            return Ok(respond(&review, Some((403, "Forbidden", message))));
        }
    }
    Ok(respond(&review, None))
}

fn permitted(volume: &DataVolume) -> Option<&str> {
    let all = volume.metadata.annotations.as_ref()?;
    all.get(COPY_PERMITTED).map(String::as_str)
}

fn is_component(shared: &Shared, request: &Value) -> bool {
    let user = request["userInfo"]["username"].as_str();
    user.is_some_and(|user| shared.cluster.now().is_component(user))
}

fn parse(object: &Value) -> Result<DataVolume, Refusal> {
    DataVolume::deserialize(object).map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> Refusal {
    let error = error_chain(error);
    Refusal::bad_request(format!("the review is malformed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_is_what_is_copied() {
        let without = json!({"metadata": {}});
        let with = json!({"metadata": {"annotations": {COPY_PERMITTED: "pvc/a/b"}}});
        let other = json!({"metadata": {"annotations": {"a": "b"}}});
        let record = || Some("pvc/c/d".to_owned());
        let applied = |mut object: Value, record: Option<String>| {
            for step in patch(&object, record).as_array().unwrap() {
                let path = step["path"].as_str().unwrap();
                if path == POINTER {
                    let notes = object["metadata"]["annotations"].as_object_mut().unwrap();
                    if step["op"] == "add" {
                        notes.insert(COPY_PERMITTED.to_owned(), step["value"].clone());
                    } else {
                        notes.remove(COPY_PERMITTED);
                    }
                } else {
                    assert_eq!(path, "/metadata/annotations");
                    object["metadata"]["annotations"] = step["value"].clone();
                }
            }
            object["metadata"]["annotations"].clone()
        };
        assert_eq!(applied(without.clone(), None), Value::Null);
        assert_eq!(
            applied(without, record()),
            json!({COPY_PERMITTED: "pvc/c/d"})
        );
        assert_eq!(applied(with.clone(), None), json!({}));
        assert_eq!(applied(with, record()), json!({COPY_PERMITTED: "pvc/c/d"}));
        assert_eq!(
            applied(other, record()),
            json!({"a": "b", COPY_PERMITTED: "pvc/c/d"})
        );
    }
}
