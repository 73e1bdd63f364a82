//! Verbs and streams that the node of a VMI carries out.

use axum::{
    extract::{Path, Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use kube::Api;
use kubevirt_api::{VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase};

use super::{Entry, Object, body, body::Options, softreboot};
use crate::{caller, node, refusal::Refusal, settings::Shared, streams};

/// A plain request to a VMI's node.
pub(crate) trait VmiVerb: Send + Sync + 'static {
    const NAME: &'static str;
    type Body: Options;

    fn dry_run(body: &Self::Body) -> &[String];

    /// Pure: may this VMI take the verb now?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;

    /// What its node is told, with the options that matter there as a query.
    fn at_node(_body: &Self::Body) -> Result<String, Refusal> {
        Ok(Self::NAME.to_owned())
    }
}

/// A websocket to a device of a VMI.
pub(crate) trait StreamVerb: Send + Sync + 'static {
    const NAME: &'static str;

    /// Pure: has this VMI the device, and is it running?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;
}

/// A question to the agent in a VMI's guest.
pub(crate) trait AgentVerb: Send + Sync + 'static {
    const NAME: &'static str;
}

pub(super) const fn agent_entry<V: AgentVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        method: Method::GET,
        mount: |router, path| router.route(path, get(ask::<V>)),
    }
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
    let body: V::Body = body::read(request).await?;
    let at_node = V::at_node(&body)?;
    let vmi = vmi(&shared, &namespace, &name).await?;
    V::admit(&vmi).map_err(|refusal| refusal.about(Object::Vmi.singular(), &name))?;
    if V::dry_run(&body).iter().any(|word| word == "All") {
        return Ok(StatusCode::OK.into_response());
    }
    node::put(&shared, &vmi, &at_node).await
}

async fn ask<V: AgentVerb>(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access_to((&namespace, &name), V::NAME, &Method::GET);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let vmi = vmi(&shared, &namespace, &name).await?;
    has_agent(&vmi)?;
    node::get(&shared, &vmi, V::NAME).await
}

/// Clients of `KubeVirt` are used to being told so as an error of the server.
fn has_agent(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    is_running(vmi).map_err(|refusal| Refusal::internal(refusal.message))?;
    hears(vmi)
}

/// Somebody in the guest does what is asked.
pub(super) fn hears(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if softreboot::has_agent(vmi) {
        return Ok(());
    }
    let message = "the VMI has no guest agent connected: install and start qemu-guest-agent in it";
    Err(Refusal::internal(message))
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
