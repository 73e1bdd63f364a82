//! The revision in which a VM pins its instance type or preference.

use ::instancetype::reference::Reference;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kubevirt_api::instancetype::VirtualMachineInstancetype;
use kubevirt_api::labels;
use serde_json::{Value, json};

use crate::vm::template;
use crate::vm::view::Vm;

/// The version of the objects in new revisions.
pub(super) const VERSION: &str = VirtualMachineInstancetype::VERSION;

/// The object that a revision contains.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) kind: String,
    /// The part of its metadata that is kept.
    pub(super) metadata: Value,
    pub(super) spec: Value,
}

impl Content {
    pub(super) fn of_object(reference: &Reference, object: &kube::api::DynamicObject) -> Self {
        let metadata = &object.metadata;
        let mut copied = json!({
            "name": metadata.name,
            "uid": metadata.uid.as_deref().unwrap_or_default(),
            "generation": metadata.generation.unwrap_or(0),
            "creationTimestamp": metadata.creation_timestamp,
        });
        if let Some(namespace) = &metadata.namespace {
            copied["namespace"] = json!(namespace);
        }
        Self {
            kind: reference.kind().to_owned(),
            metadata: copied,
            spec: object.data["spec"].clone(),
        }
    }

    /// The object in an older revision, whose spec is given in the current format. The oldest format has
    /// no metadata but in labels.
    pub(super) fn of_revision(
        reference: &Reference,
        revision: &ControllerRevision,
        spec: Value,
    ) -> Self {
        let data = revision.data.as_ref().map_or(&Value::Null, |data| &data.0);
        let label = |key: &str| revision.metadata.labels.as_ref()?.get(key).cloned();
        let text = |path: &str, key: &str| {
            let own = data.pointer(path).and_then(Value::as_str);
            own.map(ToOwned::to_owned).or_else(|| label(key))
        };
        let generation = data
            .pointer("/metadata/generation")
            .and_then(Value::as_i64)
            .or_else(|| label(labels::OBJECT_GENERATION)?.parse().ok());
        let mut metadata = match &data["metadata"] {
            Value::Object(kept) => Value::Object(kept.clone()),
            _ => json!({}),
        };
        metadata["name"] = text("/metadata/name", labels::OBJECT_NAME)
            .unwrap_or_else(|| reference.name.clone())
            .into();
        metadata["uid"] = text("/metadata/uid", labels::OBJECT_UID)
            .or_else(|| revision.metadata.uid.clone())
            .unwrap_or_default()
            .into();
        metadata["generation"] = generation.unwrap_or(0).into();
        Self {
            kind: text("/kind", labels::OBJECT_KIND)
                .filter(|kind| !kind.is_empty())
                .unwrap_or_else(|| reference.kind().to_owned()),
            metadata,
            spec,
        }
    }
}

/// A revision. Its name follows from its owner and content.
pub(super) fn body(vm: &Vm, content: &Content) -> Value {
    let Content {
        kind,
        metadata,
        spec,
    } = content;
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    let (object, uid) = (text("name"), text("uid"));
    let generation = metadata["generation"].as_i64().unwrap_or(0);
    let own = vm.metadata.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": format!("{own}-{object}-{VERSION}-{uid}-{generation}"),
            "namespace": vm.metadata.namespace,
            "labels": {
                (labels::OBJECT_NAME): object,
                (labels::OBJECT_KIND): kind,
                (labels::OBJECT_UID): uid,
                (labels::OBJECT_GENERATION): generation.to_string(),
                (labels::OBJECT_VERSION): VERSION,
            },
            "ownerReferences": [template::owner(vm)],
        },
        "data": {
            "apiVersion": VirtualMachineInstancetype::API_VERSION,
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
        },
        "revision": 0,
    })
}
