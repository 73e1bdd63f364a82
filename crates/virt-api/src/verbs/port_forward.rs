//! `portforward`: a TCP connection or UDP datagrams to a port of the guest, for a VMI and for a VM.

use axum::{
    extract::{Path, Request, State},
    response::Response,
    routing::get,
};
use kube::{Api, ResourceExt as _};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase,
};
use serde::Deserialize;

use super::{
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
    guest,
};
use crate::{caller, refusal::Refusal, settings::Shared, streams};

const NAME: &str = "portforward";
const ENDS: &[&str] = &["/{port}", "/{port}/{protocol}"];

pub(super) const TO_VMI: Entry = Entry {
    object: Object::Vmi,
    name: NAME,
    verb: Verb::Get,
    level: Level::Edit,
    contract: Contract::new(Answer::Websocket, &[400, 409, 500]),
    handler: Handler::WithParameters(ENDS, || get(to_vmi)),
};

pub(super) const TO_VM: Entry = Entry {
    object: Object::Vm,
    handler: Handler::WithParameters(ENDS, || get(to_vm)),
    ..TO_VMI
};

/// The parameters of the path.
#[derive(Debug, Deserialize)]
struct Place {
    namespace: String,
    name: String,
    port: String,
    protocol: Option<String>,
}

impl Place {
    fn access(&self, object: Object) -> caller::Access<'_> {
        caller::Access {
            namespace: &self.namespace,
            name: &self.name,
            resource: object.plural(),
            subresource: NAME,
            verb: Verb::Get.name(),
        }
    }

    /// The path on the node, with the port and protocol checked.
    fn node_request(&self) -> Result<String, Refusal> {
        let port = &self.port;
        let number = port.parse::<u16>().ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| {
            Refusal::bad_request(format!(
                "port {port:?} is not a port: give a number from 1 to 65535"
            ))
        })?;
        let protocol = match self.protocol.as_deref().unwrap_or_default() {
            "" | "tcp" => "tcp",
            "udp" => "udp",
            other => {
                let message = format!("protocol {other:?} is not supported: give tcp or udp");
                return Err(Refusal::bad_request(message));
            }
        };
        Ok(format!("{NAME}/{number}/{protocol}"))
    }
}

async fn to_vmi(
    State(shared): State<Shared>,
    Path(place): Path<Place>,
    request: Request,
) -> Result<Response, Refusal> {
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &place.access(Object::Vmi)).await?;
    let node_request = place.node_request()?;
    let vmi = read_vmi(&shared, &place).await?;
    forward(&shared, &vmi, &node_request, request).await
}

async fn to_vm(
    State(shared): State<Shared>,
    Path(place): Path<Place>,
    request: Request,
) -> Result<Response, Refusal> {
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &place.access(Object::Vm)).await?;
    let node_request = place.node_request()?;
    let vms: Api<VirtualMachine> = Api::namespaced(shared.client.clone(), &place.namespace);
    let vm = vms.get_opt(&place.name).await?;
    let vm = vm.ok_or_else(|| Refusal::not_found(Object::Vm.singular(), &place.name))?;
    require_started(&vm)?;
    let vmi = read_vmi(&shared, &place).await?;
    require_owner(&vmi, &vm)?;
    forward(&shared, &vmi, &node_request, request).await
}

async fn read_vmi(shared: &Shared, place: &Place) -> Result<VirtualMachineInstance, Refusal> {
    let vmis: Api<VirtualMachineInstance> =
        Api::namespaced(shared.client.clone(), &place.namespace);
    let vmi = vmis.get_opt(&place.name).await?;
    vmi.ok_or_else(|| Refusal::not_found(Object::Vmi.singular(), &place.name))
}

async fn forward(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    node_request: &str,
    request: Request,
) -> Result<Response, Refusal> {
    admit(vmi).map_err(|refusal| refusal.about(Object::Vmi.singular(), &vmi.name_any()))?;
    streams::join(shared, vmi, node_request, request).await
}

/// Pure: can the guest be reached?
pub(super) fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if guest::is_paused(vmi) {
        return Err(Refusal::conflict("VMI is paused"));
    }
    let status = vmi.status.as_ref();
    if status.is_none_or(|status| status.interfaces.is_empty()) {
        let message = "no network interfaces are present";
        return Err(Refusal::bad_request(message));
    }
    if guest::phase(vmi) != Phase::Running {
        guest::require_guest(vmi)?;
    }
    Ok(())
}

/// Pure: was a VMI made for the VM?
pub(super) fn require_started(vm: &VirtualMachine) -> Result<(), Refusal> {
    let status = vm.status.as_ref();
    if status.and_then(|status| status.created) == Some(true) {
        return Ok(());
    }
    Err(Refusal::conflict("VMI is not started").about(Object::Vm.singular(), &vm.name_any()))
}

/// A VMI of the same name may have no owner or another one.
pub(super) fn require_owner(
    vmi: &VirtualMachineInstance,
    vm: &VirtualMachine,
) -> Result<(), Refusal> {
    let uid = vm.metadata.uid.as_deref().unwrap_or_default();
    if vmi.owner_references().iter().any(|owner| owner.uid == uid) {
        return Ok(());
    }
    let message = "the VMI of this name does not belong to the VM: name the VMI itself";
    Err(Refusal::conflict(message).about(Object::Vm.singular(), &vm.name_any()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn port_and_protocol_are_checked() {
        let request = |port: &str, protocol: Option<&str>| {
            let place = Place {
                namespace: "default".to_owned(),
                name: "a".to_owned(),
                port: port.to_owned(),
                protocol: protocol.map(ToOwned::to_owned),
            };
            place
                .node_request()
                .map_err(|refusal| refusal.code.as_u16())
        };
        assert_eq!(request("22", None), Ok("portforward/22/tcp".to_owned()));
        assert_eq!(
            request("53", Some("udp")),
            Ok("portforward/53/udp".to_owned())
        );
        for (port, protocol) in [
            ("0", None),
            ("65536", None),
            ("ssh", None),
            ("-1", None),
            ("22", Some("sctp")),
            ("22", Some("TCP/../vnc")),
        ] {
            assert_eq!(request(port, protocol), Err(400), "{port} {protocol:?}");
        }
    }

    #[test]
    fn vmi_of_another_owner_is_not_the_vms() {
        let vm: VirtualMachine = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "u1"}, "spec": {},
        }))
        .unwrap();
        let owned_by = |uid: &str| {
            let owner = json!({"apiVersion": "v1", "kind": "K", "name": "a", "uid": uid});
            let vmi = json!({"metadata": {"name": "a", "ownerReferences": [owner]}});
            require_owner(&serde_json::from_value(vmi).unwrap(), &vm)
        };
        owned_by("u1").unwrap();
        assert_eq!(owned_by("u2").unwrap_err().code, 409);
    }
}
