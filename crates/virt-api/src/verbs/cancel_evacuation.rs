//! `evacuate/cancel`: takes back the request of an eviction that a guest leave its node, of a VMI or a VM.
//!
//! The order of the checks is that of `KubeVirt`: a node that is still being drained is refused even if there
//! is nothing to cancel.

use axum::{
    extract::{Path, Request, State},
    http::StatusCode,
    routing::put,
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, subresource_bodies::EvacuateCancelOptions,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body,
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
    port_forward::{require_owner, require_started},
};
use crate::{
    caller::{self, User},
    refusal::Refusal,
    settings::Shared,
};

const NAME: &str = "evacuate/cancel";
/// The name under which this component writes.
const MANAGER: &str = "virt-api";
const PATH: &str = "/status/evacuationNodeName";

pub(super) const OF_VMI: Entry = Entry {
    object: Object::Vmi,
    name: NAME,
    verb: Verb::Update,
    level: Level::Edit,
    contract: Contract::new(Answer::Done, &[400, 404, 500]).with_body("EvacuateCancelOptions"),
    handler: Handler::Built(|| put(of_vmi)),
};

pub(super) const OF_VM: Entry = Entry {
    object: Object::Vm,
    contract: Contract::new(Answer::Done, &[400, 404, 409, 500]).with_body("EvacuateCancelOptions"),
    handler: Handler::Built(|| put(of_vm)),
    ..OF_VMI
};

/// The parameters of the path.
#[derive(Debug, Deserialize)]
struct Place {
    namespace: String,
    name: String,
}

async fn of_vmi(
    State(shared): State<Shared>,
    Path(place): Path<Place>,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let user = caller::user(&shared, &request)?;
    allow(&shared, user, &place, Object::Vmi).await?;
    let options: EvacuateCancelOptions = body::read(request).await?;
    let vmi = read_vmi(&shared, &place).await?;
    cancel(&shared, &vmi, &options).await
}

async fn of_vm(
    State(shared): State<Shared>,
    Path(place): Path<Place>,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let user = caller::user(&shared, &request)?;
    allow(&shared, user, &place, Object::Vm).await?;
    let options: EvacuateCancelOptions = body::read(request).await?;
    let vms: Api<VirtualMachine> = Api::namespaced(shared.client.clone(), &place.namespace);
    let vm = vms.get_opt(&place.name).await?;
    let vm = vm.ok_or_else(|| Refusal::not_found(Object::Vm.singular(), &place.name))?;
    require_started(&vm)?;
    let vmi = read_vmi(&shared, &place).await?;
    require_owner(&vmi, &vm)?;
    cancel(&shared, &vmi, &options).await
}

async fn allow(shared: &Shared, user: User, place: &Place, object: Object) -> Result<(), Refusal> {
    let access = caller::Access {
        namespace: &place.namespace,
        name: &place.name,
        resource: object.plural(),
        subresource: NAME,
        verb: Verb::Update.name(),
    };
    caller::authorize(shared, user, &access).await
}

async fn read_vmi(shared: &Shared, place: &Place) -> Result<VirtualMachineInstance, Refusal> {
    let vmis: Api<VirtualMachineInstance> =
        Api::namespaced(shared.client.clone(), &place.namespace);
    let vmi = vmis.get_opt(&place.name).await?;
    vmi.ok_or_else(|| Refusal::not_found(Object::Vmi.singular(), &place.name))
}

async fn cancel(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    options: &EvacuateCancelOptions,
) -> Result<StatusCode, Refusal> {
    let config = shared.cluster.now();
    let nodes: Api<Node> = Api::all(shared.client.clone());
    if let Some(node) = node_of(vmi) {
        let node = nodes.get_opt(node).await?;
        let node = node.ok_or_else(|| {
            let message = "the node of the guest does not exist: status.nodeName names none";
            Refusal::internal(message)
        })?;
        require_undrained(&node, config.drain_taint())?;
    }
    let Some(patch) = decide(vmi, options)? else {
        return Ok(StatusCode::OK);
    };
    let patch = serde_json::from_value(patch).map_err(|err| Refusal::internal(err.to_string()))?;
    let parameters = PatchParams {
        dry_run: options.dry_run.iter().any(|value| value == "All"),
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let namespace = vmi.namespace().unwrap_or_default();
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(shared.client.clone(), &namespace);
    let patched = vmis
        .patch(&vmi.name_any(), &parameters, &Patch::Json::<()>(patch))
        .await;
    match patched {
        Ok(_) => Ok(StatusCode::OK),
        Err(err) => Err(Refusal::from(err).into_internal()),
    }
}

/// The node that the guest is to leave, else the one it runs on.
fn node_of(vmi: &VirtualMachineInstance) -> Option<&str> {
    let status = vmi.status.as_ref()?;
    let named = |name: &'_ Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    let node = if named(&status.evacuation_node_name) {
        &status.evacuation_node_name
    } else {
        &status.node_name
    };
    node.as_deref().filter(|name| !name.is_empty())
}

/// While a node has the taint of a drain, its guests would be asked to leave again at once.
fn require_undrained(node: &Node, taint: &str) -> Result<(), Refusal> {
    let spec = node.spec.as_ref();
    let taints = spec
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let is_drained = taints
        .iter()
        .any(|one| one.key == taint && one.effect == "NoSchedule");
    if is_drained {
        let name = node.name_any();
        let message = format!("Node {name:?} has NodeDrainTaintKey \"{taint}:NoSchedule\"");
        return Err(Refusal::bad_request(message));
    }
    Ok(())
}

/// The patch of the VMI, if there is something to cancel.
fn decide(
    vmi: &VirtualMachineInstance,
    options: &EvacuateCancelOptions,
) -> Result<Option<Value>, Refusal> {
    let status = vmi.status.as_ref();
    let node = status.and_then(|status| status.evacuation_node_name.as_deref());
    let Some(node) = node.filter(|node| !node.is_empty()) else {
        return Ok(None);
    };
    let named = &options.evacuation_node_name;
    if named != node {
        let message = format!(
            "evacuationNodeName: {named:?} is not the node that the guest is to leave: name {node:?}"
        );
        return Err(Refusal::internal(message));
    }
    Ok(Some(json!([
        {"op": "test", "path": PATH, "value": named},
        {"op": "remove", "path": PATH},
    ])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(status: &Value) -> VirtualMachineInstance {
        let vmi = json!({"metadata": {"name": "a"}, "spec": {"domain": {}}, "status": status});
        serde_json::from_value(vmi).unwrap()
    }

    #[test]
    fn only_the_named_evacuation_is_cancelled() {
        let leave = |node: &str| EvacuateCancelOptions {
            evacuation_node_name: node.to_owned(),
            ..EvacuateCancelOptions::default()
        };
        let evacuated = vmi(&json!({"nodeName": "n1", "evacuationNodeName": "n1"}));
        let patch = decide(&evacuated, &leave("n1")).unwrap().unwrap();
        assert_eq!(patch[0], json!({"op": "test", "path": PATH, "value": "n1"}));
        assert_eq!(patch[1], json!({"op": "remove", "path": PATH}));
        let refusal = decide(&evacuated, &leave("n2")).unwrap_err();
        assert_eq!(refusal.code, 500);
        assert!(refusal.message.contains("\"n1\""), "{}", refusal.message);
        for status in [json!(null), json!({"nodeName": "n1"})] {
            assert_eq!(decide(&vmi(&status), &leave("n1")).unwrap(), None);
        }
    }

    #[test]
    fn node_that_is_drained_keeps_its_evacuations() {
        let node = |taints: &Value| {
            let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": taints}});
            require_undrained(&serde_json::from_value(node).unwrap(), "kubevirt.io/drain")
        };
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        node(&Value::Null).unwrap();
        node(&taint("kubevirt.io/drain", "NoExecute")).unwrap();
        node(&taint("other", "NoSchedule")).unwrap();
        let refusal = node(&taint("kubevirt.io/drain", "NoSchedule")).unwrap_err();
        assert_eq!(
            (refusal.code.as_u16(), &*refusal.message),
            (
                400,
                "Node \"n1\" has NodeDrainTaintKey \"kubevirt.io/drain:NoSchedule\""
            )
        );
    }

    #[test]
    fn node_is_the_one_to_leave_else_the_current_one() {
        let node = |status: Value| node_of(&vmi(&status)).map(ToOwned::to_owned);
        let both = json!({"nodeName": "n1", "evacuationNodeName": "n2"});
        assert_eq!(node(both).as_deref(), Some("n2"));
        let empty = json!({"nodeName": "n1", "evacuationNodeName": ""});
        assert_eq!(node(empty).as_deref(), Some("n1"));
        assert_eq!(node(json!({})), None);
    }
}
