//! The objects of a request: names, and the template that is made of a VM. Pure.

use apimachinery::names::{is_label, is_subdomain};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::snapshot::{VirtualMachineSnapshot, VolumeBackup};
use kubevirt_api::template::{VirtualMachineTemplate, VirtualMachineTemplateRequest};
use kubevirt_api::{API_VERSION, GROUP, VirtualMachine, annotations, labels};
use reconcile::Key;
use serde_json::{Map, Value, json};

use crate::data_source::Target;
use crate::data_volume::permit;
use crate::snapshot::claim_of;

const NAME: &str = "NAME";
/// Stands for `${` in texts of the VM, which would otherwise be references to parameters.
const ESCAPE: &str = "DOLLAR";
const ESCAPED: &str = "${DOLLAR}";
const OPENING: &str = "${";
const VOLUMES: &str = "/spec/template/spec/volumes";
const INTERFACES: &str = "/spec/template/spec/domain/devices/interfaces";
const FIRMWARE: &str = "/spec/template/spec/domain/firmware";
const CHASSIS: &str = "/spec/template/spec/domain/chassis";
/// What a claim of a VM and its data volume have in common. The size is that of the copied data.
const STORAGE: [&str; 3] = ["accessModes", "storageClassName", "volumeMode"];

/// Before the UID of the request in the name of the snapshot.
pub(super) const SNAPSHOT_PREFIX: &str = "tmp-template-";
/// Before the UID of the request in the names of data volumes.
pub(super) const VOLUME_PREFIX: &str = "template-";

pub(super) fn uid(request: &VirtualMachineTemplateRequest) -> &str {
    request.metadata.uid.as_deref().unwrap_or_default()
}

/// The name of the VM to copy.
pub(super) fn vm_name(request: &VirtualMachineTemplateRequest) -> &str {
    let reference = &request.spec.virtual_machine_ref;
    reference.name.as_deref().unwrap_or_default()
}

/// The VM to copy; `None` if nothing can have these names. They become parts of paths.
pub(super) fn vm_key(request: &VirtualMachineTemplateRequest) -> Option<Key> {
    let given = request.spec.virtual_machine_ref.namespace.as_deref()?;
    let name = vm_name(request);
    let is_valid = is_label(given) && is_subdomain(name);
    is_valid.then(|| Key::new(given, name))
}

/// Whether the VM is in another namespace.
pub(super) fn is_elsewhere(request: &VirtualMachineTemplateRequest) -> bool {
    request.spec.virtual_machine_ref.namespace != request.metadata.namespace
}

pub(super) fn snapshot_name(request: &VirtualMachineTemplateRequest) -> String {
    format!("{SNAPSHOT_PREFIX}{}", uid(request))
}

pub(super) fn template_name(request: &VirtualMachineTemplateRequest) -> String {
    let given = request.spec.template_name.as_deref();
    let own = request.metadata.name.as_deref();
    let given = given.filter(|name| !name.is_empty()).or(own);
    given.unwrap_or_default().to_owned()
}

/// The name of the data volume for a disk in the snapshot.
pub(super) fn volume_name(
    request: &VirtualMachineTemplateRequest,
    backup: &VolumeBackup,
) -> String {
    format!("{VOLUME_PREFIX}{}-{}", uid(request), backup.volume_name)
}

/// The request as the controlling owner of its helpers.
pub(super) fn owner(request: &VirtualMachineTemplateRequest) -> OwnerReference {
    OwnerReference {
        api_version: VirtualMachineTemplateRequest::API_VERSION.to_owned(),
        kind: VirtualMachineTemplateRequest::KIND.to_owned(),
        name: request.metadata.name.clone().unwrap_or_default(),
        uid: uid(request).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The template as the controlling owner of its data volumes.
pub(super) fn template_owner(template: &VirtualMachineTemplate) -> OwnerReference {
    OwnerReference {
        api_version: VirtualMachineTemplate::API_VERSION.to_owned(),
        kind: VirtualMachineTemplate::KIND.to_owned(),
        name: template.metadata.name.clone().unwrap_or_default(),
        uid: template.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A snapshot in another namespace has no owner: the finalizer of the request stands for its deletion.
pub(super) fn snapshot(request: &VirtualMachineTemplateRequest, vm: &Key) -> Value {
    let owners = if is_elsewhere(request) {
        json!([])
    } else {
        json!([owner(request)])
    };
    json!({
        "apiVersion": VirtualMachineSnapshot::API_VERSION,
        "kind": VirtualMachineSnapshot::KIND,
        "metadata": {
            "name": snapshot_name(request),
            "namespace": vm.namespace,
            "labels": {labels::TEMPLATE_REQUEST_UID: uid(request)},
            "ownerReferences": owners,
        },
        "spec": {"source": {"apiGroup": GROUP, "kind": VirtualMachine::KIND, "name": vm.name}},
    })
}

/// The data volume that is filled from a disk in the snapshot, at once: no pod uses it before. One that copies from
/// another namespace says that it may: that right was asked for when the request was created.
pub(super) fn data_volume(
    request: &VirtualMachineTemplateRequest,
    vm: &Key,
    backup: &VolumeBackup,
) -> Value {
    let copied = backup.volume_snapshot_name.as_deref().unwrap_or_default();
    let mut notes = json!({annotations::CDI_BIND_IMMEDIATE_REQUESTED: ""});
    let mut storage = storage(backup);
    if is_elsewhere(request) {
        // Such a copy goes through an export. The disk may fill its claim, and so needs a larger one.
        let spec = json!(backup.persistent_volume_claim.spec);
        if let Some(size) = spec.pointer("/resources/requests/storage") {
            storage["resources"] = json!({"requests": {"storage": size}});
        }
        let copied = Target::Snapshot(Key::new(vm.namespace.as_str(), copied));
        notes[annotations::COPY_PERMITTED] = permit(&copied).into();
    }
    json!({
        "apiVersion": DataVolume::API_VERSION,
        "kind": DataVolume::KIND,
        "metadata": {
            "name": volume_name(request, backup),
            "namespace": request.metadata.namespace,
            "labels": {labels::TEMPLATE_REQUEST_UID: uid(request)},
            "annotations": notes,
            "ownerReferences": [owner(request)],
        },
        "spec": {
            "source": {"snapshot": {"namespace": vm.namespace, "name": copied}},
            "storage": storage,
        },
    })
}

/// The storage of the claim that was copied.
fn storage(backup: &VolumeBackup) -> Value {
    let spec = json!(backup.persistent_volume_claim.spec);
    let kept = STORAGE.iter().filter_map(|name| {
        let value = spec.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    });
    kept.collect::<Map<_, _>>().into()
}

/// The template whose VMs are like that VM; the message if there cannot be one.
pub(super) fn template(
    request: &VirtualMachineTemplateRequest,
    vm: &Value,
    backups: &[VolumeBackup],
) -> Result<Value, String> {
    if let Some(lost) = backups.iter().find(|one| {
        one.volume_snapshot_name
            .as_deref()
            .is_none_or(str::is_empty)
    }) {
        return Err(format!("volume {} was not copied", lost.volume_name));
    }
    let mut is_escaped = false;
    let mut vm = escaped(vm, &mut is_escaped);
    remove_identity(&mut vm);
    remove_dumps(&mut vm);
    for backup in backups {
        replace_disk(request, &mut vm, backup)?;
    }
    let mut parameters = vec![json!({
        "name": NAME, "description": "Name of the VM", "required": true,
    })];
    if is_escaped {
        parameters.push(json!({
            "name": ESCAPE, "value": OPENING,
            "description": "Stands for texts of the VM that are no parameters; leave it as it is",
        }));
    }
    let mut own = request.spec.template_labels.clone();
    own.insert(
        labels::TEMPLATE_REQUEST_UID.to_owned(),
        uid(request).to_owned(),
    );
    Ok(json!({
        "apiVersion": VirtualMachineTemplate::API_VERSION,
        "kind": VirtualMachineTemplate::KIND,
        "metadata": {
            "name": template_name(request),
            "namespace": request.metadata.namespace,
            "labels": own,
        },
        "spec": {
            "parameters": parameters,
            "virtualMachine": {
                "apiVersion": API_VERSION,
                "kind": VirtualMachine::KIND,
                "metadata": {"name": reference()},
                "spec": vm["spec"],
            },
        },
    }))
}

/// A reference to the name of the VM.
fn reference() -> String {
    format!("{OPENING}{NAME}}}")
}

/// The value with no text that could be a reference to a parameter.
fn escaped(value: &Value, is_escaped: &mut bool) -> Value {
    match value {
        Value::String(text) if text.contains(OPENING) => {
            *is_escaped = true;
            text.replace(OPENING, ESCAPED).into()
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| escaped(item, is_escaped));
            Value::Array(items.collect())
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, member)| (name.clone(), escaped(member, is_escaped)));
            Value::Object(members.collect())
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Removes what two VMs must not have in common: addresses, and the identity of firmware and chassis. Serial numbers
/// of disks stay: the guest may find its disks by them.
fn remove_identity(vm: &mut Value) {
    let interfaces = vm.pointer_mut(INTERFACES).and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        if let Some(members) = interface.as_object_mut() {
            members.remove("macAddress");
        }
    }
    if let Some(firmware) = vm.pointer_mut(FIRMWARE).and_then(Value::as_object_mut) {
        firmware.remove("uuid");
        firmware.remove("serial");
    }
    if let Some(chassis) = vm.pointer_mut(CHASSIS).and_then(Value::as_object_mut) {
        chassis.remove("serial");
    }
}

/// Removes dumps of the memory of the guest: no VM of the template may write to their claim.
fn remove_dumps(vm: &mut Value) {
    if let Some(volumes) = vm.pointer_mut(VOLUMES).and_then(Value::as_array_mut) {
        volumes.retain(|volume| volume.get("memoryDump").is_none());
    }
}

/// Has the VM copy the data volume of the request instead of its own disk.
fn replace_disk(
    request: &VirtualMachineTemplateRequest,
    vm: &mut Value,
    backup: &VolumeBackup,
) -> Result<(), String> {
    let name = &backup.volume_name;
    let own = format!("{}-{name}", reference());
    let volumes = vm.pointer_mut(VOLUMES).and_then(Value::as_array_mut);
    let mut volumes = volumes.into_iter().flatten();
    let volume = volumes.find(|volume| volume["name"] == name.as_str());
    let volume = volume.ok_or_else(|| format!("the VM has no volume {name}"))?;
    let before = claim_of(volume).map(str::to_owned);
    *volume = json!({"name": name, "dataVolume": {"name": own}});
    let spec = vm.get_mut("spec").and_then(Value::as_object_mut);
    let spec = spec.ok_or_else(|| "the VM has no spec".to_owned())?;
    let templates = spec
        .entry("dataVolumeTemplates")
        .or_insert_with(|| json!([]));
    if !templates.is_array() {
        *templates = json!([]);
    }
    let Some(templates) = templates.as_array_mut() else {
        return Ok(());
    };
    templates.retain(|one| {
        let old = one["metadata"]["name"].as_str();
        old.is_none() || old != before.as_deref()
    });
    templates.push(json!({
        "metadata": {"name": own},
        "spec": {
            "source": {"pvc": {
                "namespace": request.metadata.namespace,
                "name": volume_name(request, backup),
            }},
            "storage": storage(backup),
        },
    }));
    Ok(())
}
