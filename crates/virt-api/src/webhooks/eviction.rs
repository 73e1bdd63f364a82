//! The webhook of `pods/eviction`: looks up the pod and its guest, marks the guest, says "later".

use admission::kinds::eviction::{self, Decision, Lookup};
use axum::{
    Json,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use kubevirt_api::VirtualMachineInstance;
use serde_json::Value;

use super::{read, verdict};
use crate::{refusal::Refusal, settings::Shared};

pub(super) async fn answer(State(shared): State<Shared>, body: Bytes) -> Response {
    match judge(&shared, &body).await {
        Ok(answer) => Json(answer).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn judge(shared: &Shared, body: &[u8]) -> Result<Value, Refusal> {
    let asked = read(body)?;
    let request = &asked["request"];
    let later = match decide(shared, request).await? {
        Decision::Allow => None,
        Decision::RetryLater(message) => Some(message),
        Decision::Evacuate {
            vmi,
            patch,
            message,
        } => {
            let params = PatchParams {
                dry_run: is_dry(request),
                ..PatchParams::default()
            };
            instances(shared, request)
                .patch(&vmi, &params, &Patch::Merge(&patch))
                .await?;
            Some(message)
        }
    };
    let refused = later.map(|message| (429, "TooManyRequests", message));
    Ok(verdict(&asked, refused))
}

async fn decide(shared: &Shared, request: &Value) -> Result<Decision, Refusal> {
    let name = request["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Ok(Decision::Allow);
    }
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), namespace(request));
    let Some(pod) = pods.get_opt(name).await? else {
        return Ok(Decision::Allow);
    };
    Ok(match eviction::lookup(&pod) {
        Lookup::Nothing => Decision::Allow,
        Lookup::Vmi(name) => {
            let found = instances(shared, request).get(&name).await;
            let why = found.as_ref().err().map(ToString::to_string);
            let instance = found
                .as_ref()
                .map_err(|_| why.as_deref().unwrap_or_default());
            eviction::decide_for_launcher(&pod, instance, &request["object"], &shared.cluster.now())
        }
        Lookup::Launcher(name) => {
            let launcher = pods.get_opt(&name).await?;
            let instance = match launcher.as_ref().and_then(eviction::guest_of) {
                Some(name) => instances(shared, request).get_opt(&name).await?,
                None => None,
            };
            eviction::decide_for_volumes(instance.as_ref())
        }
    })
}

/// Whether the caller only wants to know: by the request, or by the options inside it.
fn is_dry(request: &Value) -> bool {
    let inner = &request["object"]["deleteOptions"]["dryRun"];
    request["dryRun"] == true || inner.as_array().is_some_and(|list| !list.is_empty())
}

fn instances(shared: &Shared, request: &Value) -> Api<VirtualMachineInstance> {
    Api::namespaced(shared.client.clone(), namespace(request))
}

fn namespace(request: &Value) -> &str {
    request["namespace"].as_str().unwrap_or_default()
}
