//! Additions and removals of volumes, as patches of a VM or a VMI. Pure.

use cluster_config::ClusterConfig;
use kube::api::{ObjectMeta, PatchParams};
use kubevirt_api::{
    VirtualMachine,
    disks::Disk,
    subresource_bodies::{AddVolumeOptions, RemoveVolumeOptions},
    vm_status::VirtualMachineVolumeRequest,
    vmi::VirtualMachineInstanceSpec,
    volumes::Volume,
};
use serde_json::{Value, json};

use crate::refusal::Refusal;

pub(super) const MANAGER: &str = "virt-api";
/// The gate under which a VM gets requests in its status.
pub(super) const REQUESTS: &str = "HotplugVolumes";
const DECLARATIVE: &str = "DeclarativeHotplugVolumes";

/// A change of the list of volumes.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Add(Box<AddVolumeOptions>),
    Remove(RemoveVolumeOptions),
}

impl Change {
    /// The request with what it leaves out, or why it is refused whatever its object.
    pub(super) fn checked(self, config: &ClusterConfig) -> Result<Self, Refusal> {
        require_gate(config)?;
        match self {
            Self::Add(options) => Ok(Self::Add(Box::new(complete(*options)?))),
            Self::Remove(options) if options.name.is_empty() => Err(Refusal::bad_request(
                "RemoveVolumeOptions requires name to be set",
            )),
            Self::Remove(options) => Ok(Self::Remove(options)),
        }
    }

    pub(super) fn parameters(&self) -> PatchParams {
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

/// The patch of the volumes and disks below `at`. It leaves the other items as they are stored.
pub(super) fn patch(
    at: &str,
    spec: &VirtualMachineInstanceSpec,
    change: &Change,
) -> Result<Value, Refusal> {
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
pub(super) fn unless_changed(metadata: &ObjectMeta, patch: Value) -> Value {
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
pub(super) fn request(vm: &VirtualMachine, change: &Change) -> Result<Value, Refusal> {
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
