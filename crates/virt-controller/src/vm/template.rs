//! Renders a VMI from a VM's template, as JSON: unknown fields are copied.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kubevirt_api::vm_status::{
    StateChangeRequestAction, VirtualMachineStateChangeRequest as Request,
};
use kubevirt_api::{API_VERSION, VirtualMachine, VirtualMachineInstance, annotations, finalizers};
use serde_json::{Value, json};

use super::memory_dump;
use super::view::Vm;

/// The VMI to create for a VM.
pub(super) fn vmi(vm: &Vm, requests: &[Request]) -> Value {
    let template = &*memory_dump::live_template(vm, None);
    let mut spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    set_firmware_uuid(&mut spec, vm.metadata.name.as_deref().unwrap_or_default());
    if wants_pause(requests) {
        spec["startStrategy"] = "Paused".into();
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachineInstance::KIND,
        "metadata": metadata(vm, template.get("metadata")),
        "spec": spec,
    })
}

/// Owner of the VMI of a VM.
pub(super) fn owner(vm: &Vm) -> Value {
    let reference: ObjectReference = vm.object_ref(&());
    json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachine::KIND,
        "name": reference.name,
        "uid": reference.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn metadata(vm: &Vm, template: Option<&Value>) -> Value {
    let copied = |member: &str| {
        template
            .and_then(|t| t.get(member))
            .filter(|v| v.is_object())
    };
    let mut metadata = json!({
        "name": vm.metadata.name,
        "namespace": vm.metadata.namespace,
        "annotations": copied("annotations").cloned().unwrap_or_else(|| json!({})),
        "finalizers": [finalizers::VM_CONTROLLER],
        "ownerReferences": [owner(vm)],
    });
    if let Some(labels) = copied("labels") {
        metadata["labels"] = labels.clone();
    }
    let generation = vm.metadata.generation.unwrap_or(0).to_string();
    metadata["annotations"][annotations::VM_GENERATION] = generation.into();
    metadata
}

pub(super) fn set_firmware_uuid(spec: &mut Value, vm_name: &str) {
    let given = spec
        .pointer("/domain/firmware/uuid")
        .and_then(Value::as_str);
    if given.is_some_and(|uuid| !uuid.is_empty()) {
        return;
    }
    let uuid = defaults::controller::firmware_uuid(vm_name);
    // Indexing creates missing objects; the schema refuses templates that are not objects.
    if spec.is_object() {
        spec["domain"]["firmware"]["uuid"] = uuid.to_string().into();
    }
}

fn wants_pause(requests: &[Request]) -> bool {
    let first = requests.first();
    let start = first.filter(|request| request.action == StateChangeRequestAction::Start);
    start.is_some_and(|request| {
        request
            .data
            .get("paused")
            .is_some_and(|value| value == "true")
    })
}
