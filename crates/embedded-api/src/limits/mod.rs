//! Limit ranges: completes the containers of a new pod, and refuses pods and claims outside of the limits of their
//! namespace.
//!
//! Invariant: an object is checked in the form in which it is stored, after all webhooks.

mod constraints;
mod defaults;

use apimachinery::{Status, meta};
use serde_json::Value;

use crate::{
    api::Api,
    error::ApiError,
    kinds::pods,
    store::{Collection, Scope},
    verbs::Call,
};

const PLURAL: &str = "limitranges";

/// Fills in requests and limits that the containers of a new pod do not have, and the class that follows from them; may
/// be repeated. Other objects stay.
pub(crate) async fn complete(api: &Api, call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    if !call.kind.is("", "pods") {
        return Ok(());
    }
    for range in of_namespace(api, &call.namespace).await? {
        defaults::apply(&range, pod);
    }
    let class = pods::qos_class(pod);
    if let Some(Value::Object(status)) = pod.get_mut("status") {
        status.insert("qosClass".to_owned(), class.into());
    }
    Ok(())
}

/// Refuses a new pod, and a new or changed claim, that a limit range of its namespace does not allow.
pub(crate) async fn admit(
    api: &Api,
    call: &Call,
    live: Option<&Value>,
    object: &Value,
) -> Result<(), ApiError> {
    // Containers of an existing pod keep their resources.
    let is_pod = call.kind.is("", "pods") && live.is_none();
    let is_claim = call.kind.is("", "persistentvolumeclaims");
    if call.subresource.is_some() || !(is_pod || is_claim) || meta::is_deleting(object) {
        return Ok(());
    }
    for range in of_namespace(api, &call.namespace).await? {
        let wrong = if is_pod {
            constraints::of_pod(&range, object)
        } else {
            constraints::of_claim(&range, object)
        };
        let why = match &wrong[..] {
            [] => continue,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Err(Status::forbidden(call.kind.resource(), meta::name(object), &why).into());
    }
    Ok(())
}

async fn of_namespace(api: &Api, namespace: &str) -> Result<Vec<Value>, ApiError> {
    let scope = Scope {
        namespace: Some(namespace.to_owned()),
        ..Scope::all(Collection::new("", PLURAL))
    };
    let page = api.store.list(&scope, None, None).await?;
    page.items
        .iter()
        .map(|stored| Ok(stored.parse()?))
        .collect()
}
