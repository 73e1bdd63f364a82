//! Verbs and streams that virt-handler on the node of a VMI executes.

use axum::{
    extract::{Path, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, put},
};
use cluster_config::ClusterConfig;
use kube::Api;
use kubevirt_api::{VirtualMachine, VirtualMachineInstance};
use serde::Deserialize;

use super::{
    body::{self, Options},
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
    guest,
};
use crate::{caller, node, refusal::Refusal, settings::Shared, streams};

/// A request to the node of a VMI.
pub(crate) trait VmiVerb: Send + Sync + 'static {
    const NAME: &'static str;
    /// Codes of refusals.
    const REFUSALS: &'static [u16];
    type Body: Options;

    fn dry_run(body: &Self::Body) -> &[String];

    /// Pure: may this VMI take the verb now?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;

    /// Pure: does the VM of this name forbid the verb now? Only asked if there is such a VM.
    fn admit_vm(_vm: &VirtualMachine) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether [`Self::admit_vm`] can refuse, so that the VM is read.
    const ASKS_VM: bool = false;

    /// The path on the node, with the options that virt-handler needs as a query.
    fn node_request(_body: &Self::Body) -> Result<String, Refusal> {
        Ok(Self::NAME.to_owned())
    }
}

/// A websocket to a device of a VMI.
pub(crate) trait StreamVerb: Send + Sync + 'static {
    const NAME: &'static str;
    const CONTRACT: Contract;

    /// Pure: does this VMI have the device, and is it running?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;

    /// Pure: does the administrator allow it?
    fn admit_cluster(_config: &ClusterConfig) -> Result<(), Refusal> {
        Ok(())
    }

    /// The path on the node, with the options of the caller's query that virt-handler needs.
    fn node_request(query: Option<&str>) -> Result<String, Refusal> {
        let query = query.map(|query| format!("?{query}"));
        Ok(format!("{}{}", Self::NAME, query.unwrap_or_default()))
    }
}

/// A report of the guest agent.
pub(crate) trait AgentVerb: Send + Sync + 'static {
    const NAME: &'static str;
    /// The type of the report.
    const REPORT: &'static str;
}

/// A request to the node of a VMI with an answer whose type the node chooses.
pub(crate) trait BytesVerb: Send + Sync + 'static {
    const NAME: &'static str;
    const LEVEL: Level;
    const CONTRACT: Contract;

    /// Pure: may this VMI take the verb now?
    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal>;

    /// The path on the node, with the options of the caller's query that virt-handler needs.
    fn node_request(query: Option<&str>) -> Result<String, Refusal>;
}

pub(super) const fn bytes_entry<V: BytesVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        verb: Verb::Get,
        level: V::LEVEL,
        contract: V::CONTRACT,
        handler: Handler::Built(|| get(fetch::<V>)),
    }
}

pub(super) const fn agent_entry<V: AgentVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        verb: Verb::Get,
        level: Level::View,
        contract: Contract::new(Answer::Object(V::REPORT), &[500]),
        handler: Handler::Built(|| get(report::<V>)),
    }
}

pub(super) const fn entry<V: VmiVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        verb: Verb::Update,
        level: Level::Edit,
        contract: Contract {
            body: V::Body::TYPE,
            ..Contract::new(Answer::Done, V::REFUSALS)
        },
        handler: Handler::Built(|| put(call::<V>)),
    }
}

pub(super) const fn stream_entry<V: StreamVerb>() -> Entry {
    Entry {
        object: Object::Vmi,
        name: V::NAME,
        verb: Verb::Get,
        level: Level::Edit,
        contract: V::CONTRACT,
        handler: Handler::Built(|| get(stream::<V>)),
    }
}

async fn call<V: VmiVerb>(
    State(shared): State<Shared>,
    Path(vmi_name): Path<VmiName>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access(&vmi_name, V::NAME, Verb::Update);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let body: V::Body = body::read(request).await?;
    let node_request = V::node_request(&body)?;
    if V::ASKS_VM {
        let vms: Api<VirtualMachine> = Api::namespaced(shared.client.clone(), &vmi_name.namespace);
        let vm = vms.get_opt(&vmi_name.name).await?;
        let admitted = vm.as_ref().map_or(Ok(()), V::admit_vm);
        admitted.map_err(|refusal| refusal.about(Object::Vm.singular(), &vmi_name.name))?;
    }
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
    let access = access(&vmi_name, V::NAME, Verb::Get);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let vmi = read(&shared, &vmi_name).await?;
    require_agent(&vmi)?;
    node::get(&shared, &vmi, V::NAME).await
}

/// `KubeVirt` reports every refusal as an internal error here, as for reports of the guest agent.
async fn fetch<V: BytesVerb>(
    State(shared): State<Shared>,
    Path(vmi_name): Path<VmiName>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access(&vmi_name, V::NAME, Verb::Get);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let node_request = V::node_request(request.uri().query())?;
    let vmi = read(&shared, &vmi_name).await?;
    V::admit(&vmi).map_err(Refusal::into_internal)?;
    node::get_bytes(&shared, &vmi, &node_request).await
}

/// `KubeVirt` reports a guest that does not run as an internal error here, and its clients expect it.
fn require_agent(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    guest::require_running(vmi).map_err(Refusal::into_internal)?;
    guest::require_agent(vmi)
}

async fn stream<V: StreamVerb>(
    State(shared): State<Shared>,
    Path(vmi_name): Path<VmiName>,
    request: Request,
) -> Result<Response, Refusal> {
    let access = access(&vmi_name, V::NAME, Verb::Get);
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let vmi = read(&shared, &vmi_name).await?;
    V::admit(&vmi).map_err(|refusal| refusal.about(Object::Vmi.singular(), &vmi_name.name))?;
    V::admit_cluster(&shared.cluster.now())?;
    let node_request = V::node_request(request.uri().query())?;
    streams::join(&shared, &vmi, &node_request, request).await
}

/// The parameters of the path.
#[derive(Debug, Deserialize)]
struct VmiName {
    namespace: String,
    name: String,
}

fn access<'a>(vmi: &'a VmiName, subresource: &'a str, verb: Verb) -> caller::Access<'a> {
    caller::Access {
        namespace: &vmi.namespace,
        name: &vmi.name,
        resource: Object::Vmi.plural(),
        subresource,
        verb: verb.name(),
    }
}

async fn read(shared: &Shared, vmi: &VmiName) -> Result<VirtualMachineInstance, Refusal> {
    let VmiName { namespace, name } = vmi;
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(shared.client.clone(), namespace);
    let vmi = vmis.get_opt(name).await?;
    vmi.ok_or_else(|| Refusal::not_found(Object::Vmi.singular(), name))
}
