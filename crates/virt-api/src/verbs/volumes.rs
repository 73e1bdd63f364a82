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
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance,
    disks::Disk,
    subresource_bodies::{AddVolumeOptions, RemoveVolumeOptions},
    vm_status::VirtualMachineVolumeRequest,
    vmi::VirtualMachineInstanceSpec,
    vmi_status::VirtualMachineInstancePhase as Phase,
    volumes::Volume,
};
use serde_json::{Value, json};

use super::{
    body,
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
    guest::phase,
};
use crate::{caller, refusal::Refusal, settings::Shared};

pub(super) const MANAGER: &str = "virt-api";
const ADD: &str = "addvolume";
const REMOVE: &str = "removevolume";
/// The gate under which a VM gets requests in its status.
const REQUESTS: &str = "HotplugVolumes";
const DECLARATIVE: &str = "DeclarativeHotplugVolumes";
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

/// A change of the list of volumes.
#[derive(Debug, Clone)]
enum Change {
    Add(Box<AddVolumeOptions>),
    Remove(RemoveVolumeOptions),
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

impl Change {
    /// The request with what it leaves out, or why it is refused whatever its object.
    fn checked(self, config: &ClusterConfig) -> Result<Self, Refusal> {
        require_gate(config)?;
        match self {
            Self::Add(options) => Ok(Self::Add(Box::new(complete(*options)?))),
            Self::Remove(options) if options.name.is_empty() => Err(Refusal::bad_request(
                "RemoveVolumeOptions requires name to be set",
            )),
            Self::Remove(options) => Ok(Self::Remove(options)),
        }
    }

    fn parameters(&self) -> PatchParams {
        let dry_run = match self {
            Self::Add(options) => &options.dry_run,
            Self::Remove(options) => &options.dry_run,
        };
        PatchParams {
            dry_run: dry_run.iter().any(|value| value == "All"),
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        }
    }
}

/// Volumes can come to running guests.
pub(super) fn require_gate(config: &ClusterConfig) -> Result<(), Refusal> {
    if config.has_gate(DECLARATIVE) || config.has_gate(REQUESTS) {
        return Ok(());
    }
    let message =
        "Enable DeclarativeHotplugVolumes or HotplugVolumes feature gate to use this API.";
    Err(Refusal::bad_request(message))
}

/// Names the disk like the volume, and marks the source as hot-pluggable.
fn complete(mut options: AddVolumeOptions) -> Result<AddVolumeOptions, Refusal> {
    let source = &mut options.volume_source;
    let missing = if options.name.is_empty() {
        Some("name to be set")
    } else if options.disk == Disk::default() {
        Some("disk to not be nil")
    } else if source.persistent_volume_claim.is_none() && source.data_volume.is_none() {
        Some("VolumeSource to not be nil")
    } else {
        None
    };
    if let Some(missing) = missing {
        let message = format!("AddVolumeOptions requires {missing}");
        return Err(Refusal::bad_request(message));
    }
    options.disk.name.clone_from(&options.name);
    options
        .disk
        .serial
        .get_or_insert_with(|| options.name.clone());
    if let Some(claim) = &mut source.persistent_volume_claim {
        claim.hotpluggable = Some(true);
    }
    if let Some(volume) = &mut source.data_volume {
        volume.hotpluggable = Some(true);
    }
    Ok(options)
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

/// The patch of the volumes and disks below `at`. It leaves the other items as they are stored.
fn patch(at: &str, spec: &VirtualMachineInstanceSpec, change: &Change) -> Result<Value, Refusal> {
    let volumes = List {
        path: format!("{at}/volumes"),
        names: spec.volumes.iter().map(|volume| &*volume.name).collect(),
    };
    let all = &spec.domain.devices.disks;
    let disks = List {
        path: format!("{at}/domain/devices/disks"),
        names: all.iter().map(|disk| &*disk.name).collect(),
    };
    let is_drive = |name: &str| {
        let mut drives = all.iter().filter(|disk| disk.cdrom.is_some());
        drives.any(|disk| disk.name == name)
    };
    let operations = match change {
        Change::Add(options) => {
            let volume = Volume {
                name: options.name.clone(),
                persistent_volume_claim: options.volume_source.persistent_volume_claim.clone(),
                data_volume: options.volume_source.data_volume.clone(),
                ..Volume::default()
            };
            require_new(&spec.volumes, &volume)?;
            let mut operations = vec![volumes.add(&json!(volume))];
            // The volume is the medium of a drive of its name.
            if !is_drive(&options.name) {
                operations.extend(disks.remove(&options.name));
                operations.push(disks.add(&json!(options.disk)));
            }
            operations
        }
        Change::Remove(options) => {
            let name = require_plugged(&spec.volumes, &options.name)?;
            let mut operations = volumes.remove(name);
            // A drive stays when its medium goes.
            if !is_drive(name) {
                operations.extend(disks.remove(name));
            }
            operations
        }
    };
    Ok(operations.into())
}

/// The patch, which fails if the object is not this one any more and it replaces a whole list: of two writers
/// of a first item, one would lose its own.
fn unless_changed(metadata: &ObjectMeta, patch: Value) -> Value {
    let Value::Array(mut operations) = patch else {
        return patch;
    };
    if operations
        .iter()
        .any(|operation| operation["value"].is_array())
    {
        let test = json!({
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": metadata.resource_version,
        });
        operations.insert(0, test);
    }
    operations.into()
}

/// A list of an object, by the names of its items.
struct List<'a> {
    path: String,
    names: Vec<&'a str>,
}

impl List<'_> {
    fn add(&self, item: &Value) -> Value {
        let path = &self.path;
        // An empty list may not be stored.
        if self.names.is_empty() {
            json!({"op": "add", "path": path, "value": [item]})
        } else {
            json!({"op": "add", "path": format!("{path}/-"), "value": item})
        }
    }

    /// Fails if another item is there meanwhile.
    fn remove(&self, name: &str) -> Vec<Value> {
        let Some(index) = self.names.iter().position(|one| *one == name) else {
            return Vec::new();
        };
        let item = format!("{}/{index}", self.path);
        vec![
            json!({"op": "test", "path": format!("{item}/name"), "value": name}),
            json!({"op": "remove", "path": item}),
        ]
    }
}

/// The patch that adds a request to the status of a VM.
fn request(vm: &VirtualMachine, change: &Change) -> Result<Value, Refusal> {
    let template = vm.spec.template.spec.clone().unwrap_or_default();
    let status = vm.status.clone().unwrap_or_default();
    let mut all = status.volume_requests.clone();
    let name = match change {
        Change::Add(options) => &options.name,
        Change::Remove(options) => &options.name,
    };
    for pending in &all {
        let add = pending.add_volume_options.as_ref().map(|one| &one.name);
        let remove = pending.remove_volume_options.as_ref().map(|one| &one.name);
        for (kind, pending) in [("add", add), ("remove", remove)] {
            if pending == Some(name) {
                let message = format!("{kind} volume request for volume [{name}] already exists");
                return Err(Refusal::conflict(message));
            }
        }
    }
    // The same refusals as for the template.
    patch("", &template, change)?;
    all.push(match change {
        Change::Add(options) => VirtualMachineVolumeRequest {
            add_volume_options: Some((**options).clone()),
            ..VirtualMachineVolumeRequest::default()
        },
        Change::Remove(options) => VirtualMachineVolumeRequest {
            remove_volume_options: Some(options.clone()),
            ..VirtualMachineVolumeRequest::default()
        },
    });
    let path = "/status/volumeRequests";
    Ok(match (&vm.status, status.volume_requests.is_empty()) {
        (None, _) => json!([{"op": "add", "path": "/status", "value": {"volumeRequests": all}}]),
        (Some(_), true) => json!([{"op": "add", "path": path, "value": all}]),
        (Some(_), false) => json!([
            {"op": "test", "path": path, "value": status.volume_requests},
            {"op": "replace", "path": path, "value": all},
        ]),
    })
}

fn require_new(volumes: &[Volume], new: &Volume) -> Result<(), Refusal> {
    let name = &new.name;
    if volumes.iter().any(|volume| volume.name == *name) {
        let message =
            format!("Unable to add volume [{name}] because volume with that name already exists");
        return Err(Refusal::conflict(message));
    }
    let source = claim_name(new).unwrap_or_default();
    if volumes
        .iter()
        .any(|volume| claim_name(volume) == Some(source))
    {
        let message = format!("Unable to add volume source [{source}] because it already exists");
        return Err(Refusal::conflict(message));
    }
    Ok(())
}

/// The name of a volume that may be removed, by its own name or that of its source.
fn require_plugged<'a>(volumes: &'a [Volume], name: &str) -> Result<&'a str, Refusal> {
    let named = volumes.iter().find(|volume| volume.name == name);
    let volume = named.or_else(|| volumes.iter().find(|one| claim_name(one) == Some(name)));
    let Some(volume) = volume else {
        let message = format!("Unable to remove volume [{name}] because it does not exist");
        return Err(Refusal::conflict(message));
    };
    let claim = volume.persistent_volume_claim.as_ref();
    let claim = claim.and_then(|claim| claim.hotpluggable);
    let data_volume = volume.data_volume.as_ref();
    let is_plugged = claim.or_else(|| data_volume.and_then(|volume| volume.hotpluggable));
    if is_plugged != Some(true) {
        let message = format!("Unable to remove volume [{name}] because it is not hotpluggable");
        return Err(Refusal::conflict(message));
    }
    Ok(&volume.name)
}

pub(super) fn claim_name(volume: &Volume) -> Option<&str> {
    let claim = volume.persistent_volume_claim.as_ref();
    let claim = claim.map(|claim| claim.claim_name.as_str());
    claim.or_else(|| Some(volume.data_volume.as_ref()?.name.as_str()))
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
    use super::*;

    fn add(value: Value) -> Result<Change, Refusal> {
        let options: AddVolumeOptions = serde_json::from_value(value).unwrap();
        complete(options).map(|options| Change::Add(Box::new(options)))
    }

    fn remove(name: &str) -> Change {
        Change::Remove(RemoveVolumeOptions {
            name: name.to_owned(),
            ..RemoveVolumeOptions::default()
        })
    }

    fn request_for(name: &str, claim: &str) -> Value {
        json!({
            "name": name, "disk": {"disk": {"bus": "scsi"}},
            "volumeSource": {"persistentVolumeClaim": {"claimName": claim}},
        })
    }

    fn spec() -> VirtualMachineInstanceSpec {
        serde_json::from_value(json!({
            "volumes": [
                {"name": "root", "containerDisk": {"image": "i"}},
                {"name": "fixed", "persistentVolumeClaim": {"claimName": "f"}},
                {"name": "hot", "persistentVolumeClaim": {"claimName": "h", "hotpluggable": true}},
            ],
            "domain": {"devices": {"disks": [
                {"name": "root", "disk": {}}, {"name": "fixed", "disk": {}},
                {"name": "hot", "disk": {}},
            ]}},
        }))
        .unwrap()
    }

    #[test]
    fn incomplete_requests_have_the_texts_of_kubevirt() {
        let mut unnamed = request_for("", "c");
        unnamed["name"] = json!("");
        let mut diskless = request_for("a", "c");
        diskless["disk"] = json!(null);
        let mut sourceless = request_for("a", "c");
        sourceless["volumeSource"] = json!(null);
        for (body, text) in [
            (unnamed, "AddVolumeOptions requires name to be set"),
            (diskless, "AddVolumeOptions requires disk to not be nil"),
            (
                sourceless,
                "AddVolumeOptions requires VolumeSource to not be nil",
            ),
        ] {
            let refusal = add(body).unwrap_err();
            assert_eq!((refusal.code.as_u16(), &*refusal.message), (400, text));
        }
    }

    #[test]
    fn impossible_changes_are_conflicts_with_the_texts_of_kubevirt() {
        for (change, text) in [
            (
                add(request_for("root", "c")).unwrap(),
                "Unable to add volume [root] because volume with that name already exists",
            ),
            (
                add(request_for("new", "f")).unwrap(),
                "Unable to add volume source [f] because it already exists",
            ),
            (
                remove("none"),
                "Unable to remove volume [none] because it does not exist",
            ),
            (
                remove("fixed"),
                "Unable to remove volume [fixed] because it is not hotpluggable",
            ),
        ] {
            let refusal = patch("/spec", &spec(), &change).unwrap_err();
            assert_eq!((refusal.code.as_u16(), &*refusal.message), (409, text));
        }
    }

    #[test]
    fn patch_adds_and_removes_volume_and_disk() {
        let new = add(request_for("new", "c")).unwrap();
        let patched = patch("/spec", &spec(), &new).unwrap();
        assert_eq!(patched[0]["path"], "/spec/volumes/-");
        let volume = &patched[0]["value"];
        assert_eq!(volume["persistentVolumeClaim"]["hotpluggable"], true);
        assert_eq!(patched[1]["path"], "/spec/domain/devices/disks/-");
        assert_eq!(patched[1]["value"]["name"], "new");
        assert_eq!(patched[1]["value"]["serial"], "new");
        let first = patch("", &VirtualMachineInstanceSpec::default(), &new).unwrap();
        assert_eq!(first[0]["path"], "/volumes");
        assert_eq!(first[0]["value"][0]["name"], "new");
        // A list that another writer has made meanwhile is not replaced.
        let metadata = ObjectMeta {
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        };
        let guarded = unless_changed(&metadata, first.clone());
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        assert_eq!((&guarded[0], &guarded[1]), (&test, &first[0]));
        assert_eq!(unless_changed(&metadata, patched.clone()), patched);
        // By its own name or by that of its claim.
        for name in ["hot", "h"] {
            let patched = patch("/spec", &spec(), &remove(name)).unwrap();
            let expected = json!([
                {"op": "test", "path": "/spec/volumes/2/name", "value": "hot"},
                {"op": "remove", "path": "/spec/volumes/2"},
                {"op": "test", "path": "/spec/domain/devices/disks/2/name", "value": "hot"},
                {"op": "remove", "path": "/spec/domain/devices/disks/2"},
            ]);
            assert_eq!(patched, expected, "{name}");
        }
    }

    #[test]
    fn medium_comes_and_goes_without_its_drive() {
        let mut with_drive = spec();
        with_drive.domain.devices.disks[2] =
            serde_json::from_value(json!({"name": "hot", "cdrom": {}})).unwrap();
        let ejected = patch("", &with_drive, &remove("hot")).unwrap();
        assert_eq!(ejected.as_array().unwrap().len(), 2);
        with_drive.volumes.truncate(2);
        let inserted = patch("", &with_drive, &add(request_for("hot", "h")).unwrap()).unwrap();
        assert_eq!(inserted.as_array().unwrap().len(), 1);
    }

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

    #[test]
    fn pending_request_is_a_conflict() {
        let mut vm = VirtualMachine::default();
        vm.spec.template.spec = Some(spec());
        let change = add(request_for("new", "c")).unwrap();
        let patched = request(&vm, &change).unwrap();
        assert_eq!(patched[0]["path"], "/status");
        let pending = patched[0]["value"]["volumeRequests"].clone();
        let status = json!({"volumeRequests": pending});
        vm.status = Some(serde_json::from_value(status).unwrap());
        let refusal = request(&vm, &change).unwrap_err();
        let text = "add volume request for volume [new] already exists";
        assert_eq!((refusal.code.as_u16(), &*refusal.message), (409, text));
    }
}
