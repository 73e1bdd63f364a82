//! `objectgraph`: the objects that a VM or VMI consists of and depends on.

mod build;
mod filter;

use axum::{
    Json,
    extract::{Path, Request, State},
    routing::get,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PartialObjectMeta},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance,
    object_graph::{ObjectGraphNode, ObjectGraphOptions},
};
use serde::Deserialize;

use super::{
    body,
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
};
use crate::{
    caller::{self, User},
    refusal::Refusal,
    settings::Shared,
};

const NAME: &str = "objectgraph";
const GATE: &str = "ObjectGraph";

pub(super) const OF_VM: Entry = Entry {
    object: Object::Vm,
    name: NAME,
    verb: Verb::Get,
    level: Level::View,
    contract: Contract::new(Answer::Object("ObjectGraphNode"), &[400, 404])
        .with_body("ObjectGraphOptions"),
    handler: Handler::Built(|| get(of_vm)),
};

pub(super) const OF_VMI: Entry = Entry {
    object: Object::Vmi,
    handler: Handler::Built(|| get(of_vmi)),
    ..OF_VM
};

/// The parameters of the path.
#[derive(Debug, Deserialize)]
struct Place {
    namespace: String,
    name: String,
}

async fn of_vm(
    State(shared): State<Shared>,
    Path(place): Path<Place>,
    request: Request,
) -> Result<Json<ObjectGraphNode>, Refusal> {
    let user = caller::user(&shared, &request)?;
    allow(&shared, user, &place, Object::Vm).await?;
    let options: ObjectGraphOptions = body::read(request).await?;
    let vms: Api<VirtualMachine> = Api::namespaced(shared.client.clone(), &place.namespace);
    let vm = vms.get_opt(&place.name).await?;
    let vm = vm.ok_or_else(|| Refusal::not_found(Object::Vm.singular(), &place.name))?;
    let pod = launcher_pod(&shared, &place).await?;
    let graph = build::of_vm(&vm, pod.as_deref());
    filter::apply(graph, &options).map(Json)
}

async fn of_vmi(
    State(shared): State<Shared>,
    Path(place): Path<Place>,
    request: Request,
) -> Result<Json<ObjectGraphNode>, Refusal> {
    let user = caller::user(&shared, &request)?;
    allow(&shared, user, &place, Object::Vmi).await?;
    let options: ObjectGraphOptions = body::read(request).await?;
    let vmis: Api<VirtualMachineInstance> =
        Api::namespaced(shared.client.clone(), &place.namespace);
    let vmi = vmis.get_opt(&place.name).await?;
    let vmi = vmi.ok_or_else(|| Refusal::not_found(Object::Vmi.singular(), &place.name))?;
    let pod = launcher_pod(&shared, &place).await?;
    let graph = build::of_vmi(&vmi, pod.as_deref());
    filter::apply(graph, &options).map(Json)
}

async fn allow(shared: &Shared, user: User, place: &Place, object: Object) -> Result<(), Refusal> {
    let access = caller::Access {
        namespace: &place.namespace,
        name: &place.name,
        resource: object.plural(),
        subresource: NAME,
        verb: Verb::Get.name(),
    };
    caller::authorize(shared, user, &access).await?;
    if shared.cluster.now().has_gate(GATE) {
        return Ok(());
    }
    let message = "ObjectGraph feature gate not enabled: Unable to return object graph.";
    Err(Refusal::bad_request(message))
}

/// The name of the VMI's pod.
async fn launcher_pod(shared: &Shared, place: &Place) -> Result<Option<String>, Refusal> {
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &place.namespace);
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    let pods = pods.list_metadata(&launchers).await?;
    let of_vmi = |pod: &&PartialObjectMeta<Pod>| {
        pod.owner_references()
            .iter()
            .any(|owner| owner.kind == "VirtualMachineInstance" && owner.name == place.name)
    };
    Ok(pods
        .items
        .iter()
        .find(of_vmi)
        .map(kube::ResourceExt::name_any))
}
