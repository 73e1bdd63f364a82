//! The webhook of `pods/eviction`: reads the pod and its VMI, marks the VMI for evacuation, and answers
//! "try again later".

use admission::kinds::eviction::{self, Decision, Lookup};
use axum::{
    Extension,
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
use serving::Peer;

use super::{read, respond, send};
use crate::{
    caller::is_front_proxy,
    refusal::Refusal,
    settings::{Shared, WebhookCallers},
};

pub(super) async fn answer(
    State(shared): State<Shared>,
    peer: Option<Extension<Peer>>,
    body: Bytes,
) -> Response {
    let peer = peer.map(|Extension(peer)| peer);
    if shared.webhook_callers == WebhookCallers::FrontProxy
        && !is_front_proxy(&shared, peer.as_ref())
    {
        let why = "evictions are reviewed for the Kubernetes API server only";
        return Refusal::unauthorized(why).into_response();
    }
    match review(&shared, &body).await {
        Ok(answer) => send(answer),
        Err(refusal) => refusal.into_response(),
    }
}

async fn review(shared: &Shared, body: &[u8]) -> Result<Value, Refusal> {
    let review = read(body)?;
    let request = &review["request"];
    let later = match decide(shared, request).await? {
        Decision::Allow => None,
        Decision::RetryLater(message) => Some(message),
        Decision::Evacuate {
            vmi,
            patch,
            message,
        } => {
            let params = PatchParams {
                dry_run: is_dry_run(request),
                ..PatchParams::default()
            };
            vmis(shared, request)
                .patch(&vmi, &params, &Patch::Merge(&patch))
                .await?;
            Some(message)
        }
    };
    let refused = later.map(|message| (429, "TooManyRequests", message));
    Ok(respond(&review, refused))
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
            let found = vmis(shared, request).get(&name).await;
            let why = found.as_ref().err().map(ToString::to_string);
            let instance = found
                .as_ref()
                .map_err(|_| why.as_deref().unwrap_or_default());
            eviction::decide_for_launcher(&pod, instance, &request["object"], &shared.cluster.now())
        }
        Lookup::Launcher(name) => {
            let launcher = pods.get_opt(&name).await?;
            let instance = match launcher.as_ref().and_then(eviction::guest_of) {
                Some(name) => vmis(shared, request).get_opt(&name).await?,
                None => None,
            };
            eviction::decide_for_volumes(instance.as_ref())
        }
    })
}

/// Whether it is a dry run, by the request or by the options in its object.
fn is_dry_run(request: &Value) -> bool {
    let inner = &request["object"]["deleteOptions"]["dryRun"];
    request["dryRun"] == true || inner.as_array().is_some_and(|list| !list.is_empty())
}

fn vmis(shared: &Shared, request: &Value) -> Api<VirtualMachineInstance> {
    Api::namespaced(shared.client.clone(), namespace(request))
}

fn namespace(request: &Value) -> &str {
    request["namespace"].as_str().unwrap_or_default()
}
