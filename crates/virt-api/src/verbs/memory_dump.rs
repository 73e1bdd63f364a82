//! `memorydump` and `removememorydump`: the memory of a running guest in a claim.
//!
//! Both write a request into the status of the VM, which virt-controller follows.

use axum::{
    extract::{Request, State},
    http::StatusCode,
    routing::put,
};
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PatchParams},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance,
    quantity::Amount,
    vm_status::{MemoryDumpPhase as Phase, VirtualMachineMemoryDumpRequest},
    vmi_status::VirtualMachineInstancePhase,
    volumes::Volume,
};
use serde_json::{Value, json};

use super::{
    NoOptions,
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
    guest::phase,
    volume_changes::{MANAGER, claim_name, require_gate},
    volumes::{Target, authorize, json_patch, lost_race},
};
use crate::{refusal::Refusal, settings::Shared};

const NAME: &str = "memorydump";
const REMOVE_NAME: &str = "removememorydump";
const CLAIM: &str = "persistentvolumeclaim";
const MIB: u64 = 1 << 20;
/// A dump is larger than the memory.
const HEADER: u64 = 100 * MIB;
/// Of a file system, in thousandths, where CDI's configuration does not say.
const OVERHEAD: u64 = 55;

pub(super) const DUMP: Entry = Entry {
    object: Object::Vm,
    name: NAME,
    verb: Verb::Update,
    level: Level::Edit,
    contract: Contract::new(Answer::Accepted, &[400, 404, 409])
        .with_body("VirtualMachineMemoryDumpRequest"),
    handler: Handler::Built(|| put(dump)),
};
pub(super) const REMOVE: Entry = Entry {
    name: REMOVE_NAME,
    contract: Contract::new(Answer::Accepted, &[409]),
    handler: Handler::Built(|| put(remove)),
    ..DUMP
};

async fn dump(at: State<Shared>, of: Target, request: Request) -> Result<StatusCode, Refusal> {
    let authorized = authorize(&at, &of, Object::Vm, NAME, request);
    let (_, body): (_, VirtualMachineMemoryDumpRequest) = authorized.await?;
    let (shared, (namespace, name)) = (&at.0, &of.0);
    require_gate(&shared.cluster.now())?;
    let vm = read_vm(&shared.client, namespace, name).await?;
    let about = |refusal: Refusal| refusal.about(Object::Vm.singular(), name);
    let claim = chosen_claim(&vm, &body.claim_name).map_err(about)?;
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(shared.client.clone(), namespace);
    let vmi = vmis.get_opt(name).await?;
    let vmi = vmi.ok_or_else(|| Refusal::not_found(Object::Vmi.singular(), name))?;
    if phase(&vmi) != VirtualMachineInstancePhase::Running {
        let refusal = Refusal::conflict("VMI is not running");
        return Err(refusal.about(Object::Vmi.singular(), name));
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(shared.client.clone(), namespace);
    let found = claims.get_opt(&claim).await?;
    let found = found.ok_or_else(|| Refusal::missing(format!("{CLAIM} {claim:?} not found")))?;
    let config = cdi_config(&shared.client).await?;
    require_room(&found, &vmi, &config).map_err(|refusal| about_claim(refusal, &claim))?;
    require_idle(&vm, &claim).map_err(about)?;
    let request = VirtualMachineMemoryDumpRequest {
        claim_name: claim,
        phase: Phase::Associating,
        ..VirtualMachineMemoryDumpRequest::default()
    };
    write(shared, &vm, (namespace, name), &request, false).await
}

async fn remove(at: State<Shared>, of: Target, request: Request) -> Result<StatusCode, Refusal> {
    let authorized = authorize(&at, &of, Object::Vm, REMOVE_NAME, request);
    let (_, body): (_, NoOptions) = authorized.await?;
    let (shared, (namespace, name)) = (&at.0, &of.0);
    let vm = read_vm(&shared.client, namespace, name).await?;
    let request = removal(&vm).map_err(|refusal| refusal.about(Object::Vm.singular(), name))?;
    let dry_run = body.dry_run.iter().any(|value| value == "All");
    write(shared, &vm, (namespace, name), &request, dry_run).await
}

async fn read_vm(client: &Client, namespace: &str, name: &str) -> Result<VirtualMachine, Refusal> {
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let vm = vms.get_opt(name).await?;
    vm.ok_or_else(|| Refusal::not_found(Object::Vm.singular(), name))
}

async fn write(
    shared: &Shared,
    vm: &VirtualMachine,
    (namespace, name): (&str, &str),
    request: &VirtualMachineMemoryDumpRequest,
    dry_run: bool,
) -> Result<StatusCode, Refusal> {
    let vms: Api<VirtualMachine> = Api::namespaced(shared.client.clone(), namespace);
    let parameters = PatchParams {
        dry_run,
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = json_patch(patch(vm, request))?;
    let written = vms.patch_status(name, &parameters, &patch).await;
    written.map_err(|error| lost_race(name, error).about(Object::Vm.singular(), name))?;
    Ok(StatusCode::ACCEPTED)
}

/// `status` of CDI's configuration; null without CDI.
async fn cdi_config(client: &Client) -> Result<Value, Refusal> {
    let resource = ApiResource {
        group: "cdi.kubevirt.io".to_owned(),
        version: "v1beta1".to_owned(),
        api_version: "cdi.kubevirt.io/v1beta1".to_owned(),
        kind: "CDIConfig".to_owned(),
        plural: "cdiconfigs".to_owned(),
    };
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut config = configs.get_opt("config").await?;
    let status = config.as_mut().map(|config| config.data["status"].take());
    Ok(status.unwrap_or_default())
}

/// The claim of the request, or that of the last dump.
fn chosen_claim(vm: &VirtualMachine, requested: &str) -> Result<String, Refusal> {
    let status = vm.status.as_ref();
    let last = status.and_then(|status| status.memory_dump_request.as_ref());
    let known = last.map(|last| last.claim_name.as_str());
    let template = vm.spec.template.spec.as_ref();
    let volumes = template.map_or(&[][..], |spec| &spec.volumes);
    let known = known.or_else(|| volumes.iter().find_map(dump_claim));
    match (requested, known) {
        ("", None) => Err(Refusal::bad_request(
            "Memory dump requires claim name to be set",
        )),
        ("", Some(known)) => Ok(known.to_owned()),
        (requested, Some(known)) if requested != known => Err(Refusal::conflict(format!(
            "can't request memory dump for pvc [{requested}] while pvc [{known}] is still \
             associated as the memory dump pvc"
        ))),
        (requested, _) => {
            let mut disks = volumes.iter().filter(|one| one.memory_dump.is_none());
            if disks.any(|one| one.name == requested || claim_name(one) == Some(requested)) {
                let message = format!("pvc [{requested}] is, or names, another volume of the VM");
                return Err(Refusal::conflict(message));
            }
            Ok(requested.to_owned())
        }
    }
}

fn dump_claim(volume: &Volume) -> Option<&str> {
    let dump = volume.memory_dump.as_ref();
    dump.map(|dump| dump.claim_name.as_str())
}

/// The claim can be written to, and is large enough.
fn require_room(
    claim: &PersistentVolumeClaim,
    vmi: &VirtualMachineInstance,
    config: &Value,
) -> Result<(), Refusal> {
    let spec = claim.spec.clone().unwrap_or_default();
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err(Refusal::conflict("pvc should be filesystem pvc"));
    }
    let modes = spec.access_modes.unwrap_or_default();
    if !modes.is_empty() && modes.iter().all(|mode| mode == "ReadOnlyMany") {
        return Err(Refusal::conflict("pvc access mode can't be read only"));
    }
    let requests = spec.resources.and_then(|resources| resources.requests);
    let requested = requests.and_then(|requests| requests.get("storage").cloned());
    let requested = requested.unwrap_or_else(|| Quantity("0".to_owned()));
    let needed = needed(vmi, config, spec.storage_class_name.as_deref());
    let size = Amount::parse(&requested).unwrap_or(Amount::ZERO).units();
    if size < needed {
        let (size, needed) = (requested.0, needed.div_ceil(MIB));
        return Err(Refusal::conflict(format!(
            "pvc size [{size}] should be bigger then [{needed}Mi]"
        )));
    }
    Ok(())
}

/// The bytes that a claim for the dump needs.
fn needed(vmi: &VirtualMachineInstance, config: &Value, class: Option<&str>) -> u64 {
    let domain = &vmi.spec.domain;
    let guest = domain
        .memory
        .as_ref()
        .and_then(|memory| memory.guest.as_ref());
    let resources = domain.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.get("memory"));
    let memory = [guest, requests].into_iter().flatten();
    let memory = memory.filter_map(|quantity| Amount::parse(quantity).ok());
    let memory = memory.map(Amount::units).max().unwrap_or(0);
    let overheads = &config["filesystemOverhead"];
    let of_class = class.and_then(|class| overheads["storageClass"][class].as_str());
    let overhead = of_class.or(overheads["global"].as_str());
    let overhead = overhead.and_then(|text| Amount::parse_text(text).ok());
    let overhead = overhead.map_or(OVERHEAD, Amount::millis);
    let data = memory.saturating_add(HEADER);
    data.saturating_add(data.saturating_mul(overhead).div_ceil(1000))
}

/// No dump is under way.
fn require_idle(vm: &VirtualMachine, claim: &str) -> Result<(), Refusal> {
    let status = vm.status.as_ref();
    let last = status.and_then(|status| status.memory_dump_request.as_ref());
    match last.map(|last| &last.phase) {
        None | Some(Phase::Completed | Phase::Failed) => Ok(()),
        Some(Phase::Dissociating) => Err(Refusal::conflict(format!(
            "can't dump memory for pvc [{claim}] a remove memory dump request is in progress"
        ))),
        Some(_) => Err(Refusal::conflict(format!(
            "memory dump request for pvc [{claim}] already in progress"
        ))),
    }
}

/// The request that releases the claim.
fn removal(vm: &VirtualMachine) -> Result<VirtualMachineMemoryDumpRequest, Refusal> {
    let status = vm.status.as_ref();
    let last = status.and_then(|status| status.memory_dump_request.as_ref());
    let Some(last) = last else {
        let name = vm.metadata.name.as_deref().unwrap_or_default();
        return Err(Refusal::conflict(format!(
            "can't remove memory dump association for vm {name}, no association found"
        )));
    };
    let claim = &last.claim_name;
    if last.remove == Some(true) {
        return Err(Refusal::conflict(format!(
            "memory dump remove request for pvc [{claim}] already exists"
        )));
    }
    Ok(VirtualMachineMemoryDumpRequest {
        claim_name: claim.clone(),
        phase: Phase::Dissociating,
        remove: Some(true),
        ..VirtualMachineMemoryDumpRequest::default()
    })
}

/// The patch of the status, unless another request was faster.
fn patch(vm: &VirtualMachine, request: &VirtualMachineMemoryDumpRequest) -> Value {
    let Some(status) = &vm.status else {
        let status = json!({"memoryDumpRequest": request});
        return json!([{"op": "add", "path": "/status", "value": status}]);
    };
    let path = "/status/memoryDumpRequest";
    json!([
        {"op": "test", "path": path, "value": status.memory_dump_request},
        {"op": "add", "path": path, "value": request},
    ])
}

fn about_claim(mut refusal: Refusal, claim: &str) -> Refusal {
    refusal.message = format!(
        "Operation cannot be fulfilled on {CLAIM} {claim:?}: {}",
        refusal.message
    );
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(request: &Value, volumes: &Value) -> VirtualMachine {
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"template": {"spec": {"domain": {"devices": {}}, "volumes": volumes}}},
            "status": {"memoryDumpRequest": request},
        }))
        .unwrap()
    }

    fn request(claim: &str, phase: &str) -> Value {
        json!({"claimName": claim, "phase": phase})
    }

    fn text<T>(result: Result<T, Refusal>) -> (u16, String) {
        let refusal = result.err().unwrap();
        (refusal.code.as_u16(), refusal.message)
    }

    #[test]
    fn claim_is_that_of_the_last_dump_unless_the_request_names_one() {
        let (none, no_volumes) = (Value::Null, json!([]));
        let own = json!([{"name": "d", "memoryDump": {"claimName": "c"}}]);
        let disk = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        for (last, volumes, asked, expected) in [
            (&none, &no_volumes, "c", "c"),
            (&request("c", "Completed"), &no_volumes, "", "c"),
            (&request("c", "Completed"), &own, "c", "c"),
            (&none, &own, "", "c"),
        ] {
            assert_eq!(chosen_claim(&vm(last, volumes), asked).unwrap(), expected);
        }
        let still = "can't request memory dump for pvc [d] while pvc [c] is still associated as the \
                     memory dump pvc";
        let taken = "pvc [c] is, or names, another volume of the VM";
        for (last, volumes, asked, code, expected) in [
            (
                &none,
                &no_volumes,
                "",
                400,
                "Memory dump requires claim name to be set",
            ),
            (&request("c", "Completed"), &no_volumes, "d", 409, still),
            (&none, &own, "d", 409, still),
            (&none, &disk, "c", 409, taken),
        ] {
            let found = text(chosen_claim(&vm(last, volumes), asked));
            assert_eq!(found, (code, expected.to_owned()));
        }
    }

    #[test]
    fn claim_has_room_for_memory_header_and_file_system() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "spec": {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}},
        }))
        .unwrap();
        let claim = |spec: Value| -> PersistentVolumeClaim {
            let mut whole = json!({
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "resources": {"requests": {"storage": "1186Mi"}},
            });
            for (member, value) in spec.as_object().unwrap() {
                whole[member] = value.clone();
            }
            serde_json::from_value(json!({"spec": whole})).unwrap()
        };
        let size = |size: &str| json!({"resources": {"requests": {"storage": size}}});
        let none = Value::Null;
        require_room(&claim(json!({})), &vmi, &none).unwrap();
        let config = json!({"filesystemOverhead": {
            "global": "0.01", "storageClass": {"fast": "0.1"},
        }});
        for (spec, config, expected) in [
            (
                size("1185Mi"),
                &none,
                "pvc size [1185Mi] should be bigger then [1186Mi]",
            ),
            (
                json!({}),
                &config,
                "pvc size [1186Mi] should be bigger then [1237Mi]",
            ),
            (
                json!({"volumeMode": "Block"}),
                &none,
                "pvc should be filesystem pvc",
            ),
            (
                json!({"accessModes": ["ReadOnlyMany"]}),
                &none,
                "pvc access mode can't be read only",
            ),
        ] {
            let found = text(require_room(&claim(spec), &vmi, config));
            assert_eq!(found, (409, expected.to_owned()));
        }
    }

    #[test]
    fn one_request_at_a_time() {
        let with = |phase: &str| vm(&request("c", phase), &json!([]));
        require_idle(&vm(&Value::Null, &json!([])), "c").unwrap();
        for phase in ["Completed", "Failed"] {
            require_idle(&with(phase), "c").unwrap();
        }
        for phase in ["Associating", "InProgress", "Unmounting"] {
            let expected = "memory dump request for pvc [c] already in progress";
            let found = text(require_idle(&with(phase), "c"));
            assert_eq!(found, (409, expected.to_owned()), "{phase}");
        }
        assert_eq!(text(require_idle(&with("Dissociating"), "c")).0, 409);
    }

    #[test]
    fn removal_keeps_the_claim_and_happens_once() {
        let removal_of = |last: &Value| removal(&vm(last, &json!([])));
        let found = removal_of(&request("c", "InProgress")).unwrap();
        let expected = json!({"claimName": "c", "phase": "Dissociating", "remove": true});
        assert_eq!(json!(found), expected);
        assert_eq!(text(removal_of(&expected)).0, 409);
        let none = "can't remove memory dump association for vm a, no association found";
        assert_eq!(text(removal_of(&Value::Null)), (409, none.to_owned()));
    }

    #[test]
    fn patch_fails_if_another_request_was_faster() {
        let new = VirtualMachineMemoryDumpRequest {
            claim_name: "c".to_owned(),
            phase: Phase::Associating,
            ..VirtualMachineMemoryDumpRequest::default()
        };
        let first = patch(&vm(&Value::Null, &json!([])), &new);
        assert_eq!(first[0]["value"], Value::Null);
        let second = patch(&vm(&request("c", "Failed"), &json!([])), &new);
        assert_eq!(second[0]["value"], request("c", "Failed"));
        assert_eq!(second[1]["value"], request("c", "Associating"));
        let bare = patch(&VirtualMachine::default(), &new);
        assert_eq!(bare[0]["path"], "/status");
    }
}
