//! Verbs and streams that virt-handler on the node of a VMI executes.

use axum::{
    extract::{Path, Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use kube::Api;
use kubevirt_api::VirtualMachineInstance;
use serde::Deserialize;

use super::{Entry, Level, Object, body, body::Options, guest};
use crate::{caller, node, refusal::Refusal, settings::Shared, streams};

/// A request to the node of a VMI.
pub(crate) trait VmiVerb: Send + Sync + 'static {
    const NAME: &'static str;
    type Body: Options;

    fn dry_run(body: &Self::Body) -> &[String];

    /// Pure: may this VMI take the verb now?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;

    /// The path on the node, with the options that virt-handler needs as a query.
    fn node_request(_body: &Self::Body) -> Result<String, Refusal> {
        Ok(Self::NAME.to_owned())
    }
}

/// A websocket to a device of a VMI.
pub(crate) trait StreamVerb: Send + Sync + 'static {
    const NAME: &'static str;

    /// Pure: does this VMI have the device, and is it running?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;
}

/// A report of the guest agent.
pub(crate) trait AgentVerb: Send + Sync + 'static {
    const NAME: &'static str;
}

pub(super) const fn agent_entry<V: AgentVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        method: Method::GET,
        level: Level::View,
        mount: |router, path| router.route(path, get(report::<V>)),
    }
}

pub(super) const fn entry<V: VmiVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        method: Method::PUT,
        level: Level::Edit,
        mount: |router, path| router.route(path, put(call::<V>)),
    }
}

pub(super) const fn stream_entry<V: StreamVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        method: Method::GET,
        level: Level::Edit,
        mount: |router, path| router.route(path, get(stream::<V>)),
    }
}

async fn call<V: VmiVerb>(
    State(shared): State<Shared>,
    Path(vmi_name): Path<VmiName>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access(&vmi_name, V::NAME, &Method::PUT);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let body: V::Body = body::read(request).await?;
    let node_request = V::node_request(&body)?;
    let vmi = read(&shared, &vmi_name).await?;
    V::admit(&vmi).map_err(|refusal| refusal.about(Object::Vmi.singular(), &vmi_name.name))?;
    if V::dry_run(&body).iter().any(|value| value == "All") {
        return Ok(StatusCode::OK.into_response());
    }
    node::put(&shared, &vmi, &node_request).await
}

async fn report<V: AgentVerb>(
    State(shared): State<Shared>,
    Path(vmi_name): Path<VmiName>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access(&vmi_name, V::NAME, &Method::GET);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let vmi = read(&shared, &vmi_name).await?;
    require_agent(&vmi)?;
    node::get(&shared, &vmi, V::NAME).await
}

/// `KubeVirt` reports a guest that does not run as an internal error here, and its clients expect it.
fn require_agent(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    guest::require_running(vmi).map_err(|refusal| Refusal::internal(refusal.message))?;
    guest::require_agent(vmi)
}

async fn stream<V: StreamVerb>(
    State(shared): State<Shared>,
    Path(vmi_name): Path<VmiName>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access(&vmi_name, V::NAME, &Method::GET);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let vmi = read(&shared, &vmi_name).await?;
    V::admit(&vmi).map_err(|refusal| refusal.about(Object::Vmi.singular(), &vmi_name.name))?;
    streams::join(&shared, &vmi, V::NAME, request).await
}

/// The parameters of the path.
#[derive(Debug, Deserialize)]
struct VmiName {
    namespace: String,
    name: String,
}

fn access<'a>(vmi: &'a VmiName, subresource: &'a str, method: &Method) -> caller::Access<'a> {
    caller::Access {
        namespace: &vmi.namespace,
        name: &vmi.name,
        resource: Object::Vmi.plural(),
        subresource,
        verb: super::access(method),
    }
}

async fn read(shared: &Shared, vmi: &VmiName) -> Result<VirtualMachineInstance, Refusal> {
    let VmiName { namespace, name } = vmi;
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(shared.client.clone(), namespace);
    let vmi = vmis.get_opt(name).await?;
    vmi.ok_or_else(|| Refusal::not_found(Object::Vmi.singular(), name))
}
