//! The objects that import an exported VM elsewhere: its disks as data volumes with the addresses of the export, the
//! authority of its certificate, and the VM on those data volumes.

use kubevirt_api::export::VirtualMachineExport;
use kubevirt_api::quantity::Amount;
use serde_json::{Map, Value, json};

use super::links::{Base, file};
use super::names;
use super::observe::{Volume, dump_of};
use crate::data_volume::{capacity, is_block, usable_bytes};
use crate::snapshot::claim_of;

/// Annotations that say nothing about the VM elsewhere.
const DROPPED: [&str; 3] = [
    "kubectl.kubernetes.io/",
    "kubemacpool.io/",
    "restore.kubevirt.io/",
];

/// All objects, in the order in which they are created.
pub(super) fn objects(
    export: &VirtualMachineExport,
    vm: &Value,
    volumes: &[Volume],
    base: &Base,
) -> Vec<Value> {
    let mut vm = portable(vm);
    let mut objects = Vec::new();
    // Clients know that of an ingress.
    let authority = (!base.authority.is_empty()).then(|| names::authority(export));
    if let Some(name) = &authority {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"ca.pem": base.authority},
        }));
    }
    for volume in volumes.iter().filter(|one| one.is_disk) {
        let mut source = json!({"http": {
            // Its length is known, so an importer can tell whether it has all of it.
            "url": file(&base.url, volume, "disk.img"),
            "secretExtraHeaders": [names::header(export)],
        }});
        if let Some(name) = &authority {
            source["http"]["certConfigMap"] = json!(name);
        }
        if !set_template(&mut vm, volume, &source) {
            objects.push(data_volume(volume, &source));
        }
        use_data_volume(&mut vm, volume);
    }
    objects.push(vm);
    objects
}

/// As documents of YAML.
pub(super) fn yaml(objects: &[Value]) -> Result<String, String> {
    let mut text = String::new();
    for object in objects {
        let document = serde_saphyr::to_string(object).map_err(|error| error.to_string())?;
        text.push_str(document.trim_end());
        text.push_str("\n---\n");
    }
    Ok(text)
}

/// As one list.
pub(super) fn list(objects: &[Value]) -> String {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    format!("{list:#}\n")
}

/// The VM without what belongs to this one alone.
fn portable(vm: &Value) -> Value {
    let kept = |field: &str| {
        let all = vm["metadata"][field].as_object().cloned();
        let mut all: Map<String, Value> = all.unwrap_or_default();
        all.retain(|name, _| !DROPPED.iter().any(|beginning| name.starts_with(beginning)));
        Some(all).filter(|all| !all.is_empty())
    };
    let mut metadata = json!({"name": vm["metadata"]["name"]});
    for field in ["labels", "annotations"] {
        if let Some(all) = kept(field) {
            metadata[field] = all.into();
        }
    }
    let mut spec = vm["spec"].clone();
    let volumes = spec.pointer_mut("/template/spec/volumes");
    if let Some(volumes) = volumes.and_then(Value::as_array_mut) {
        // The next guest would dump its memory.
        volumes.retain(|volume| dump_of(volume).is_none());
    }
    for matcher in ["instancetype", "preference"] {
        if let Some(matcher) = spec[matcher].as_object_mut() {
            // A revision exists in its own cluster only.
            matcher.remove("revisionName");
        }
        if spec[matcher].is_null()
            && let Some(members) = spec.as_object_mut()
        {
            members.remove(matcher);
        }
    }
    json!({
        "apiVersion": kubevirt_api::API_VERSION,
        "kind": kubevirt_api::VirtualMachine::KIND,
        "metadata": metadata,
        "spec": spec,
    })
}

/// Has the VM's template of the data volume download it; false if there is none.
fn set_template(vm: &mut Value, volume: &Volume, source: &Value) -> bool {
    let templates = vm["spec"].get_mut("dataVolumeTemplates");
    let mut templates = templates
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    let template = templates.find(|one| one["metadata"]["name"] == *volume.original);
    let Some(template) = template else {
        return false;
    };
    template["metadata"] = json!({"name": volume.original});
    template["spec"] = data_volume(volume, source)["spec"].take();
    true
}

fn data_volume(volume: &Volume, source: &Value) -> Value {
    let claim = volume.claim.as_deref();
    let is_block = claim.is_some_and(is_block);
    let size = claim.and_then(|claim| {
        if is_block {
            capacity(claim)
        } else {
            usable_bytes(claim)
        }
    });
    let mut storage = json!({});
    if let Some(size) = size {
        storage["resources"]["requests"]["storage"] = json!(Amount::of(size).to_binary());
    }
    if is_block {
        storage["volumeMode"] = "Block".into();
    }
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": volume.original},
        "spec": {"source": source, "storage": storage},
    })
}

/// Volumes with that claim get the data volume, which makes the claim.
fn use_data_volume(vm: &mut Value, volume: &Volume) {
    let volumes = vm.pointer_mut("/spec/template/spec/volumes");
    let volumes = volumes.and_then(Value::as_array_mut).into_iter().flatten();
    for one in volumes.filter(|one| claim_of(one) == Some(&volume.original)) {
        let options = one
            .get("persistentVolumeClaim")
            .or_else(|| one.get("dataVolume"));
        let hotpluggable = options
            .and_then(|options| options.get("hotpluggable"))
            .cloned();
        let mut reference = json!({"name": volume.original});
        if let Some(hotpluggable) = hotpluggable {
            reference["hotpluggable"] = hotpluggable;
        }
        *one = json!({"name": one["name"], "dataVolume": reference});
    }
}
