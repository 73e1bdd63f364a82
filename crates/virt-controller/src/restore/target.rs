//! The VM after a restore: pure.

use json_patch::Patch;
use kubevirt_api::annotations;
use kubevirt_api::restore::VirtualMachineRestore;
use serde_json::{Map, Value, json};

use super::claims::mark;
use crate::snapshot::claim_of;

/// A volume and the claim that it is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) volume: String,
    pub(super) claim: String,
}

/// Metadata and spec of the restored VM: those of the snapshot with the new claims. The run strategy of an
/// existing VM stays; a new one is halted.
pub(super) fn restored(
    restore: &VirtualMachineRestore,
    source: &Value,
    existing: Option<&Value>,
    replaced: &[Replaced],
) -> Result<Value, String> {
    let mut spec = source["spec"].clone();
    let old = existing.map(|vm| &vm["spec"]);
    if let Some(members) = spec.as_object_mut() {
        let is_flag = members.remove("running").is_some();
        members.remove("runStrategy");
        match old {
            Some(old) => {
                for field in ["running", "runStrategy"] {
                    if let Some(value) = old.get(field).filter(|value| !value.is_null()) {
                        members.insert(field.to_owned(), value.clone());
                    }
                }
            }
            None if is_flag => {
                members.insert("running".to_owned(), false.into());
            }
            None => {
                members.insert("runStrategy".to_owned(), "Halted".into());
            }
        }
    }
    replace_claims(&mut spec, replaced);
    let mut from = existing.unwrap_or(source)["metadata"].clone();
    let mut take = |part: &str| match from.get_mut(part).map(Value::take) {
        Some(Value::Object(members)) => Value::Object(members),
        _ => json!({}),
    };
    let metadata = json!({"labels": take("labels"), "annotations": take("annotations")});
    let mut vm = json!({"metadata": metadata, "spec": spec});
    for text in &restore.spec.patches {
        let operation = serde_json::from_str(text).map_err(|error| format!("{text}: {error}"))?;
        let patch = Patch(vec![operation]);
        json_patch::patch(&mut vm, &patch).map_err(|error| format!("{text}: {error}"))?;
    }
    vm["metadata"]["annotations"][annotations::LAST_RESTORE_UID] = mark(restore).into();
    Ok(vm)
}

/// Volumes name the new claims; templates of data volumes that are not used any more go.
fn replace_claims(spec: &mut Value, replaced: &[Replaced]) {
    let mut unused = Vec::new();
    let volumes = spec.pointer_mut("/template/spec/volumes");
    if let Some(volumes) = volumes.and_then(Value::as_array_mut) {
        volumes.retain(|volume| volume.get("memoryDump").is_none());
        for volume in volumes {
            let name = volume["name"].as_str().unwrap_or_default();
            let Some(new) = replaced.iter().find(|one| one.volume == name) else {
                continue;
            };
            let old = volume
                .get("dataVolume")
                .or(volume.get("persistentVolumeClaim"));
            let mut source = old.cloned().unwrap_or_else(|| json!({}));
            if let Some(data_volume) = volume.pointer("/dataVolume/name").and_then(Value::as_str) {
                unused.push(data_volume.to_owned());
            }
            if let Some(members) = source.as_object_mut() {
                members.remove("name");
            }
            source["claimName"] = new.claim.as_str().into();
            if let Some(members) = volume.as_object_mut() {
                members.remove("dataVolume");
                members.insert("persistentVolumeClaim".to_owned(), source);
            }
        }
    }
    let templates = spec.get_mut("dataVolumeTemplates");
    if let Some(templates) = templates.and_then(Value::as_array_mut) {
        templates.retain(|one| {
            let name = one.pointer("/metadata/name").and_then(Value::as_str);
            !name.is_some_and(|name| unused.iter().any(|one| one == name))
        });
        if templates.is_empty()
            && let Some(members) = spec.as_object_mut()
        {
            members.remove("dataVolumeTemplates");
        }
    }
}

/// Claims of a new VM that its source uses as well: their volumes are not in the snapshot.
pub(crate) fn shared_claims(source: &Value, vm: &Value) -> Vec<String> {
    let old = claims_of(source);
    claims_of(vm)
        .into_iter()
        .filter(|claim| old.contains(claim))
        .collect()
}

/// The names of the claims of a VM.
pub(super) fn claims_of(vm: &Value) -> Vec<String> {
    let volumes = vm.pointer("/spec/template/spec/volumes");
    let volumes = volumes.and_then(Value::as_array);
    let volumes = volumes.into_iter().flatten();
    volumes
        .filter_map(|volume| claim_of(volume).map(ToOwned::to_owned))
        .collect()
}

/// The merge that changes `from` to `to`.
pub(super) fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        match from.get(name) {
            Some(before) if before == value => {}
            Some(before) if before.is_object() && value.is_object() => {
                patch.insert(name.clone(), difference(before, value));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}
