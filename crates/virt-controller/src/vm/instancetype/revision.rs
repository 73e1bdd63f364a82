//! The revision in which a VM pins its instance type or preference.

use ::instancetype::reference::Reference;
use kubevirt_api::instancetype::VirtualMachineInstancetype;
use kubevirt_api::labels;
use serde_json::{Value, json};

use crate::vm::template;
use crate::vm::view::Vm;

/// The revision of an instance type or a preference. Its name follows from its owner and content.
pub(super) fn body(vm: &Vm, reference: &Reference, object: &kube::api::DynamicObject) -> Value {
    let metadata = &object.metadata;
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let generation = metadata.generation.unwrap_or(0);
    let version = VirtualMachineInstancetype::VERSION;
    let own = vm.metadata.name.as_deref().unwrap_or_default();
    let name = format!("{own}-{}-{version}-{uid}-{generation}", reference.name);
    let mut copied = json!({
        "name": metadata.name, "uid": uid, "generation": generation,
        "creationTimestamp": metadata.creation_timestamp,
    });
    if let Some(namespace) = &metadata.namespace {
        copied["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": vm.metadata.namespace,
            "labels": {
                (labels::OBJECT_NAME): reference.name,
                (labels::OBJECT_KIND): reference.kind(),
                (labels::OBJECT_UID): uid,
                (labels::OBJECT_GENERATION): generation.to_string(),
                (labels::OBJECT_VERSION): version,
            },
            "ownerReferences": [template::owner(vm)],
        },
        "data": {
            "apiVersion": VirtualMachineInstancetype::API_VERSION,
            "kind": reference.kind(),
            "metadata": copied,
            "spec": object.data["spec"],
        },
        "revision": 0,
    })
}
