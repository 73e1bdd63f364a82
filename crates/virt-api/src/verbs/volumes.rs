//! `addvolume` and `removevolume`: a volume for a guest that may be running.
//!
//! On a VM they change the template, and virt-controller lets the guest follow. With the older gate
//! `HotplugVolumes` the VM gets a request in its status instead. On a VMI that no VM owns they change the
//! VMI: the volume is gone with it.

use axum::{
    extract::{Path, Request, State},
    http::StatusCode,
    routing::put,
};
use cluster_config::ClusterConfig;
use kube::{Api, api::Patch};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase,
};
use serde_json::Value;

use super::{
    body,
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
    guest::phase,
    volume_changes::{Change, REQUESTS, patch, request, unless_changed},
};
use crate::{caller, refusal::Refusal, settings::Shared};

const ADD: &str = "addvolume";
const REMOVE: &str = "removevolume";
/// What API servers say of a JSON patch whose test fails.
const FAILED_TEST: &str = "test failed";

const ADDS: Contract = Contract::new(Answer::Accepted, &[400, 409]).with_body("AddVolumeOptions");
const REMOVES: Contract =
    Contract::new(Answer::Accepted, &[400, 409]).with_body("RemoveVolumeOptions");

pub(super) const ADD_TO_VM: Entry = entry(Object::Vm, ADD, ADDS, Handler::Built(|| put(add_to_vm)));
pub(super) const REMOVE_FROM_VM: Entry = entry(
    Object::Vm,
    REMOVE,
    REMOVES,
    Handler::Built(|| put(remove_from_vm)),
);
pub(super) const ADD_TO_VMI: Entry =
    entry(Object::Vmi, ADD, ADDS, Handler::Built(|| put(add_to_vmi)));
pub(super) const REMOVE_FROM_VMI: Entry = entry(
    Object::Vmi,
    REMOVE,
    REMOVES,
    Handler::Built(|| put(remove_from_vmi)),
);

const fn entry(object: Object, name: &'static str, contract: Contract, handler: Handler) -> Entry {
    Entry {
        object,
        name,
        verb: Verb::Update,
        level: Level::Edit,
        contract,
        handler,
    }
}

pub(super) type Target = Path<(String, String)>;

async fn add_to_vm(at: State<Shared>, of: Target, request: Request) -> Result<StatusCode, Refusal> {
    let (authorized, body) = authorize(&at, &of, Object::Vm, ADD, request).await?;
    change_vm(&at, &of, Change::Add(Box::new(body)), authorized).await
}

async fn remove_from_vm(
    at: State<Shared>,
    of: Target,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let (authorized, body) = authorize(&at, &of, Object::Vm, REMOVE, request).await?;
    change_vm(&at, &of, Change::Remove(body), authorized).await
}

async fn add_to_vmi(
    at: State<Shared>,
    of: Target,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let (authorized, body) = authorize(&at, &of, Object::Vmi, ADD, request).await?;
    change_vmi(&at, &of, Change::Add(Box::new(body)), authorized).await
}

async fn remove_from_vmi(
    at: State<Shared>,
    of: Target,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let (authorized, body) = authorize(&at, &of, Object::Vmi, REMOVE, request).await?;
    change_vmi(&at, &of, Change::Remove(body), authorized).await
}

/// Proof that the caller has the right to the verb.
pub(super) struct Authorized;

pub(super) async fn authorize<B: body::Options>(
    State(shared): &State<Shared>,
    Path((namespace, name)): &Target,
    object: Object,
    verb: &str,
    request: Request,
) -> Result<(Authorized, B), Refusal> {
    let access = caller::Access {
        namespace,
        name,
        resource: object.plural(),
        subresource: verb,
        verb: Verb::Update.name(),
    };
    let user = caller::user(shared, &request)?;
    caller::authorize(shared, user, &access).await?;
    Ok((Authorized, body::read(request).await?))
}

async fn change_vm(
    State(shared): &State<Shared>,
    Path((namespace, name)): &Target,
    change: Change,
    _: Authorized,
) -> Result<StatusCode, Refusal> {
    let config = shared.cluster.now();
    let change = change.checked(&config)?;
    let about = |refusal: Refusal| refusal.about(Object::Vm.singular(), name);
    let vms: Api<VirtualMachine> = Api::namespaced(shared.client.clone(), namespace);
    let vm = vms.get_opt(name).await?;
    let vm = vm.ok_or_else(|| Refusal::not_found(Object::Vm.singular(), name))?;
    let parameters = change.parameters();
    let written = if config.has_gate(REQUESTS) {
        let patch = json_patch(request(&vm, &change).map_err(about)?)?;
        vms.patch_status(name, &parameters, &patch).await
    } else {
        let template = vm.spec.template.spec.clone().unwrap_or_default();
        let patch = patch("/spec/template/spec", &template, &change).map_err(about)?;
        let patch = unless_changed(&vm.metadata, patch);
        vms.patch(name, &parameters, &json_patch(patch)?).await
    };
    written.map_err(|error| about(lost_race(name, error)))?;
    Ok(StatusCode::ACCEPTED)
}

async fn change_vmi(
    State(shared): &State<Shared>,
    Path((namespace, name)): &Target,
    change: Change,
    _: Authorized,
) -> Result<StatusCode, Refusal> {
    let config = shared.cluster.now();
    let change = change.checked(&config)?;
    let about = |refusal: Refusal| refusal.about(Object::Vmi.singular(), name);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(shared.client.clone(), namespace);
    let vmi = vmis.get_opt(name).await?;
    let vmi = vmi.ok_or_else(|| Refusal::not_found(Object::Vmi.singular(), name))?;
    require_own(&vmi, &config)?;
    if phase(&vmi) != Phase::Running {
        return Err(about(Refusal::conflict("VMI is not running")));
    }
    let patch = patch("/spec", &vmi.spec, &change).map_err(about)?;
    let patch = unless_changed(&vmi.metadata, patch);
    let written = vmis
        .patch(name, &change.parameters(), &json_patch(patch)?)
        .await;
    written.map_err(|error| about(lost_race(name, error)))?;
    Ok(StatusCode::ACCEPTED)
}

/// The guest of a VM is changed through its VM, or the next start would undo the change.
fn require_own(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Result<(), Refusal> {
    let owners = vmi.metadata.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.controller == Some(true));
    let is_of_vm = owners.any(|owner| owner.kind == VirtualMachine::KIND);
    if is_of_vm && !config.has_gate(REQUESTS) {
        let message =
            "the VMI belongs to a VM: change the volumes of the VM, which its guest follows";
        return Err(Refusal::bad_request(message));
    }
    Ok(())
}

pub(super) fn json_patch(operations: Value) -> Result<Patch<()>, Refusal> {
    let patch = serde_json::from_value(operations);
    Ok(Patch::Json(
        patch.map_err(|error| Refusal::internal(error.to_string()))?,
    ))
}

/// A test of the patch failed if another writer was faster. The API server reports that like a violation of
/// the rules, but for the text.
pub(super) fn lost_race(name: &str, error: kube::Error) -> Refusal {
    let is_lost = match &error {
        kube::Error::Api(status) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let mut texts = causes.map(|cause| &cause.message).chain([&status.message]);
            status.code == 422 && texts.any(|text| text.contains(FAILED_TEST))
        }
        _ => false,
    };
    let refusal = Refusal::from(error);
    if is_lost {
        let message = format!(
            "{name} was changed in the meantime, try again: {}",
            refusal.message
        );
        return Refusal::conflict(message);
    }
    refusal
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failed_test_is_a_conflict_and_a_refusal_stays_one() {
        let refused = |message: &str, cause: &str| {
            let status = json!({
                "status": "Failure", "code": 422, "reason": "Invalid", "message": message,
                "details": {"causes": [{"reason": "UnexpectedServerResponse", "message": cause}]},
            });
            let status = serde_json::from_value(status).unwrap();
            lost_race("a", kube::Error::Api(status)).code.as_u16()
        };
        let failed = "testing value /metadata/resourceVersion failed: test failed";
        assert_eq!(refused("the server rejected our request", failed), 409);
        assert_eq!(refused(failed, ""), 409);
        assert_eq!(refused("spec.volumes[0]: no", "no"), 422);
    }
}
