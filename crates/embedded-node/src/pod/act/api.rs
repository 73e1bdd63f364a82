//! Writes to the API server: the binding, the status and the deletion of a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use reasons::Reason;
use reconcile::Key;
use serde_json::{Value, json};

use super::KILL_FAILED;
use crate::{Failure, node::Shared};

/// Field manager of pod statuses.
const MANAGER: &str = "embedded-node";

pub(crate) async fn bind(shared: Arc<Shared>, pod: Arc<Pod>) -> Result<(), Failure> {
    let Key { namespace, name } = Key::of(pod.as_ref());
    let node = &shared.settings.node_name;
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let request = http::Request::post(format!(
        "/api/v1/namespaces/{namespace}/pods/{name}/binding"
    ))
    .header(http::header::CONTENT_TYPE, "application/json")
    .body(body.to_string().into_bytes())
    .map_err(|error| Failure::of(Reason::FailedScheduling, "bind the pod", &error))?;
    match shared.settings.client.request_text(request).await {
        Ok(_) => Ok(()),
        // Already bound, by us before a restart or by another scheduler: the watch delivers it.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Failure::of(
            Reason::FailedScheduling,
            "bind the pod",
            &error,
        )),
    }
}

pub(crate) async fn write_status(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    status: Value,
) -> Result<(), Failure> {
    let Key { namespace, name } = Key::of(pod.as_ref());
    let api = Api::<Pod>::namespaced(shared.settings.client.clone(), &namespace);
    // The uid keeps the status away from a newer pod of the same name.
    let mut body = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let gates = pod.spec.as_ref().and_then(|s| s.readiness_gates.as_ref());
    let has_gates = gates.is_some_and(|gates| !gates.is_empty());
    if has_gates {
        // The list of conditions is replaced as a whole, and other writers add to it as well.
        body["metadata"]["resourceVersion"] = json!(pod.metadata.resource_version);
    }
    let parameters = kube::api::PatchParams {
        field_manager: Some(MANAGER.into()),
        ..kube::api::PatchParams::default()
    };
    match api
        .patch_status(&name, &parameters, &kube::api::Patch::Merge(&body))
        .await
    {
        Ok(_) => {
            failpoints::after("embedded-node/pod/report");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 && has_gates => {
            let message = "another client changed the pod at the same time";
            Err(Failure::new(Reason::FailedStatus, message))
        }
        // Deleted or replaced by another pod: the watch delivers it.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
        Err(error) => Err(Failure::of(
            Reason::FailedStatus,
            "write the pod's status",
            &error,
        )),
    }
}

/// Sets an annotation of the pod, by the right that is for its status.
pub(crate) async fn annotate(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    name: &str,
    value: &str,
) -> Result<(), Failure> {
    let metadata = pod.metadata.annotations.as_ref();
    if metadata
        .and_then(|all| all.get(name))
        .is_some_and(|now| now == value)
    {
        return Ok(());
    }
    let key = Key::of(pod.as_ref());
    let api = Api::<Pod>::namespaced(shared.settings.client.clone(), &key.namespace);
    let body = json!({"metadata": {"uid": pod.metadata.uid, "annotations": {name: value}}});
    let parameters = kube::api::PatchParams {
        field_manager: Some(MANAGER.into()),
        ..kube::api::PatchParams::default()
    };
    let patch = kube::api::Patch::Merge(&body);
    let patched = api.patch_status(&key.name, &parameters, &patch).await;
    patched.map(drop).map_err(|error| {
        let tried = format!("set annotation {name} of the pod");
        Failure::of(Reason::FailedStatus, &tried, &error)
    })
}

pub(crate) async fn delete_object(shared: Arc<Shared>, pod: Arc<Pod>) -> Result<(), Failure> {
    let key = Key::of(pod.as_ref());
    let api = Api::<Pod>::namespaced(shared.settings.client.clone(), &key.namespace);
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    match reconcile::delete(&api, &key, &uid, Some(0)).await {
        Ok(()) | Err(reconcile::WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Failure::of(KILL_FAILED, "delete the pod", &error)),
    }
}
