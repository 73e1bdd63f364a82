//! Renders revisions and VMs of a pool, as JSON: unknown fields are copied.

use std::collections::BTreeMap;

use kubevirt_api::pool::{VirtualMachinePool, VirtualMachinePoolNameGeneration as NameGeneration};
use kubevirt_api::{API_VERSION, VirtualMachine, finalizers, labels};
use serde_json::{Map, Value, json};

use super::view::{Pool, Revision};
use crate::merge_patch::difference;
use crate::vm::Vm;

/// Names of config maps in a volume.
const CONFIG_MAPS: [&str; 2] = ["/configMap/name", "/sysprep/configMap/name"];
/// Names of secrets in a volume.
const SECRETS: [&str; 6] = [
    "/secret/secretName",
    "/sysprep/secret/name",
    "/cloudInitNoCloud/secretRef/name",
    "/cloudInitNoCloud/networkDataSecretRef/name",
    "/cloudInitConfigDrive/secretRef/name",
    "/cloudInitConfigDrive/networkDataSecretRef/name",
];
/// Names of claims and data volumes in a volume.
const DISKS: [&str; 2] = ["/dataVolume/name", "/persistentVolumeClaim/claimName"];
/// By these members of its firmware the guest knows itself; they are chosen when the VM is created.
const IDENTITY: [&str; 2] = ["uuid", "serial"];

/// The name of the revision of the pool's present spec.
pub(super) fn revision_name(pool: &Pool) -> String {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    format!("{name}-{}", pool.metadata.generation.unwrap_or(0))
}

pub(super) fn member_name(pool: &str, ordinal: u32) -> String {
    format!("{pool}-{ordinal}")
}

/// The number of the VM of that name, if it is a name of that pool.
pub(super) fn ordinal(pool: &str, name: &str) -> Option<u32> {
    let number = name.strip_prefix(pool)?.strip_prefix('-')?.parse().ok()?;
    (member_name(pool, number) == name).then_some(number)
}

/// The name of the pool that gives that name to a VM.
pub(super) fn pool_of(name: &str) -> Option<&str> {
    let (pool, _) = name.rsplit_once('-')?;
    ordinal(pool, name).map(|_| pool)
}

pub(super) fn revision(pool: &Pool) -> Value {
    let name = revision_name(pool);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": pool.metadata.namespace,
            "labels": {labels::POOL_REVISION_NAME: name},
            "ownerReferences": [owner(pool)],
        },
        "data": pool.spec,
        "revision": pool.metadata.generation.unwrap_or(0),
    })
}

/// The VM of that number.
pub(super) fn member(pool: &Pool, ordinal: u32) -> Value {
    let naming = pool.spec.name_generation.as_ref();
    let template = &pool.spec.virtual_machine_template;
    let mut vm = numbered(template, naming, ordinal, &revision_name(pool));
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    vm["apiVersion"] = API_VERSION.into();
    vm["kind"] = VirtualMachine::KIND.into();
    vm["metadata"]["name"] = member_name(name, ordinal).into();
    vm["metadata"]["namespace"] = json!(pool.metadata.namespace);
    vm["metadata"]["finalizers"] = json!([finalizers::POOL]);
    vm["metadata"]["ownerReferences"] = json!([owner(pool)]);
    vm
}

/// A merge patch that brings a VM to the present template: what differs between the template of the VM's
/// revision and the present one. All else stays: default values, and what users and controllers have changed. If
/// the revision is unknown, it is all that the present template sets.
pub(super) fn change(pool: &Pool, vm: &Vm, before: Option<&Revision>, ordinal: u32) -> Value {
    let name = revision_name(pool);
    let naming = pool.spec.name_generation.as_ref();
    let after = numbered(&pool.spec.virtual_machine_template, naming, ordinal, &name);
    let mut patch = match before {
        Some(before) => {
            let naming = before.name_generation();
            let before = numbered(before.template(), naming.as_ref(), ordinal, &name);
            difference(&before, &after).unwrap_or_else(|| json!({}))
        }
        None => after,
    };
    patch["metadata"]["labels"][labels::POOL_REVISION_NAME] = json!(name);
    patch["spec"]["template"]["metadata"]["labels"][labels::POOL_REVISION_NAME] = json!(name);
    keep_identity(&mut patch, vm);
    patch["metadata"]["resourceVersion"] = json!(vm.metadata.resource_version);
    patch
}

fn owner(pool: &Pool) -> Value {
    json!({
        "apiVersion": VirtualMachinePool::API_VERSION,
        "kind": VirtualMachinePool::KIND,
        "name": pool.metadata.name,
        "uid": pool.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Labels, annotations and spec of the VM of that number.
fn numbered(
    template: &Value,
    naming: Option<&NameGeneration>,
    ordinal: u32,
    revision: &str,
) -> Value {
    let mut spec = object(template.get("spec"));
    number_names(&mut spec, naming, ordinal);
    let mut inner = object(spec.get("template"));
    let mut metadata = object(inner.get("metadata"));
    for (name, part) in marks(Some(&metadata), revision) {
        metadata[name] = part;
    }
    inner["metadata"] = metadata;
    spec["template"] = inner;
    let marks = marks(template.get("metadata"), revision);
    json!({"metadata": Value::from_iter(marks), "spec": spec})
}

/// Labels, with that of the revision, and annotations. Both are always there: in a patch, a missing one would
/// remove those of others.
fn marks(metadata: Option<&Value>, revision: &str) -> [(&'static str, Value); 2] {
    let part = |name: &str| object(metadata.and_then(|metadata| metadata.get(name)));
    let mut all = part("labels");
    all[labels::POOL_REVISION_NAME] = revision.into();
    [("labels", all), ("annotations", part("annotations"))]
}

/// A copy of the object, or an empty one.
fn object(value: Option<&Value>) -> Value {
    let value = value.filter(|value| value.is_object());
    value.cloned().unwrap_or_else(|| json!({}))
}

/// Gives the VM data volumes of its own, and config maps and secrets if the pool says so.
fn number_names(spec: &mut Value, naming: Option<&NameGeneration>, ordinal: u32) {
    let numbered = |name: &str| format!("{name}-{ordinal}");
    let mut own = BTreeMap::new();
    let templates = spec.get_mut("dataVolumeTemplates");
    for one in templates
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        rename(one, "/metadata/name", |name| {
            own.insert(name.to_owned(), numbered(name));
            Some(numbered(name))
        });
    }
    let volumes = spec.pointer_mut("/template/spec/volumes");
    for volume in volumes.and_then(Value::as_array_mut).into_iter().flatten() {
        for path in DISKS {
            rename(volume, path, |name| own.get(name).cloned());
        }
        if naming.and_then(|naming| naming.append_index_to_config_map_refs) == Some(true) {
            for path in CONFIG_MAPS {
                rename(volume, path, |name| Some(numbered(name)));
            }
        }
        if naming.and_then(|naming| naming.append_index_to_secret_refs) == Some(true) {
            for path in SECRETS {
                rename(volume, path, |name| Some(numbered(name)));
            }
        }
    }
}

fn rename(value: &mut Value, path: &str, new: impl FnOnce(&str) -> Option<String>) {
    if let Some(name) = value.pointer_mut(path)
        && let Some(renamed) = name.as_str().filter(|name| !name.is_empty()).and_then(new)
    {
        *name = renamed.into();
    }
}

/// Lets the VM keep the identity of its firmware.
fn keep_identity(patch: &mut Value, vm: &Vm) {
    let Some(Value::Object(there)) = vm.spec.template.pointer("/spec/domain/firmware") else {
        return;
    };
    let is_identity = |name: &str, value: &Value| {
        IDENTITY.contains(&name) && value.as_str().is_some_and(|value| !value.is_empty())
    };
    let changed = patch.pointer_mut("/spec/template/spec/domain/firmware");
    match changed {
        // Not part of the patch, so nothing of it changes.
        None => {}
        Some(Value::Object(changed)) => {
            for (name, value) in there {
                if is_identity(name, value) {
                    changed.insert(name.clone(), value.clone());
                }
            }
        }
        Some(removed) => {
            let members = there.iter().map(|(name, value)| {
                let is_kept = is_identity(name, value);
                (
                    name.clone(),
                    if is_kept { value.clone() } else { Value::Null },
                )
            });
            *removed = Value::Object(members.collect::<Map<_, _>>());
        }
    }
}
