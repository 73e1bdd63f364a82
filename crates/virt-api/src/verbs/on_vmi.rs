//! Verbs and streams that the node of a VMI carries out.

use axum::{
    extract::{Path, Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use kube::Api;
use kubevirt_api::{VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase};
use serde::de::DeserializeOwned;

use super::{Entry, Object, on_vm};
use crate::{caller, node, refusal::Refusal, settings::Shared, streams};

/// A plain request to a VMI's node.
pub(crate) trait VmiVerb: Send + Sync + 'static {
    const NAME: &'static str;
    type Body: DeserializeOwned + Default + Send + Sync;

    fn dry_run(body: &Self::Body) -> &[String];

    /// Pure: may this VMI take the verb now?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;
}

/// A websocket to a device of a VMI.
pub(crate) trait StreamVerb: Send + Sync + 'static {
    const NAME: &'static str;

    /// Pure: has this VMI the device, and is it running?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;
}

pub(super) const fn entry<V: VmiVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        method: Method::PUT,
        mount: |router, path| router.route(path, put(call::<V>)),
    }
}

pub(super) const fn stream_entry<V: StreamVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        method: Method::GET,
        mount: |router, path| router.route(path, get(stream::<V>)),
    }
}

async fn call<V: VmiVerb>(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access_to((&namespace, &name), V::NAME, &Method::PUT);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let body: V::Body = on_vm::body(request).await?;
    let vmi = vmi(&shared, &namespace, &name).await?;
    V::admit(&vmi).map_err(|refusal| refusal.about(Object::Vmi.singular(), &name))?;
    if V::dry_run(&body).iter().any(|word| word == "All") {
        return Ok(StatusCode::OK.into_response());
    }
    node::put(&shared, &vmi, V::NAME).await
}

async fn stream<V: StreamVerb>(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access_to((&namespace, &name), V::NAME, &Method::GET);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let vmi = vmi(&shared, &namespace, &name).await?;
    V::admit(&vmi).map_err(|refusal| refusal.about(Object::Vmi.singular(), &name))?;
    streams::join(&shared, &vmi, V::NAME, request).await
}

fn access_to<'a>(
    (namespace, name): (&'a str, &'a str),
    subresource: &'a str,
    method: &Method,
) -> caller::Access<'a> {
    caller::Access {
        namespace,
        name,
        resource: Object::Vmi.plural(),
        subresource,
        verb: super::access(method),
    }
}

async fn vmi(
    shared: &Shared,
    namespace: &str,
    name: &str,
) -> Result<VirtualMachineInstance, Refusal> {
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(shared.client.clone(), namespace);
    let vmi = vmis.get_opt(name).await?;
    vmi.ok_or_else(|| Refusal::not_found(Object::Vmi.singular(), name))
}

pub(crate) fn phase(vmi: &VirtualMachineInstance) -> Phase {
    vmi.status
        .as_ref()
        .and_then(|status| status.phase.clone())
        .unwrap_or_default()
}

/// For streams: the guest is there or about to be.
pub(super) fn has_guest(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match phase(vmi) {
        Phase::Running | Phase::Scheduled => Ok(()),
        Phase::Failed => Err(Refusal::conflict(
            "the VMI has failed: there is no guest any more",
        )),
        phase => {
            let phase = phase.as_str();
            Err(Refusal::bad_request(format!(
                "the VMI is not running: its phase is {phase:?}"
            )))
        }
    }
}

/// For verbs.
pub(super) fn is_running(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match phase(vmi) {
        Phase::Running => Ok(()),
        phase => {
            let phase = phase.as_str();
            Err(Refusal::conflict(format!(
                "the VMI is not running: its phase is {phase:?}"
            )))
        }
    }
}
