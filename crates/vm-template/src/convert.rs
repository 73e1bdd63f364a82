//! Makes a template of a Template of `OpenShift` (`template.openshift.io/v1`).

use serde_json::{Map, Value, json};

/// What `metadata` keeps; the rest belongs to the object on its server.
const METADATA: [&str; 3] = ["name", "labels", "annotations"];
const PARAMETER: [&str; 7] = [
    "name",
    "displayName",
    "description",
    "value",
    "generate",
    "from",
    "required",
];

/// A template, and what it lacks of the original.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted {
    pub template: Value,
    pub warnings: Vec<String>,
}

/// Why an object cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error("kind: {found:?} is not a Template of template.openshift.io")]
    Kind { found: String },
    #[error("objects: there is no VirtualMachine; a template of VMs needs one")]
    NoVm,
    #[error(
        "objects: there are {count} VirtualMachines; keep one, and make a template for each other"
    )]
    SeveralVms { count: usize },
}

/// The same template as a `VirtualMachineTemplate`.
pub fn convert(template: &Value) -> Result<Converted, ConvertError> {
    let field = |name: &str| template[name].as_str().unwrap_or_default();
    // Very old files have no group.
    let is_known = ["v1", ""].contains(&field("apiVersion"))
        || field("apiVersion").starts_with("template.openshift.io/");
    if field("kind") != "Template" || !is_known {
        let found = format!("{} {}", field("apiVersion"), field("kind"));
        return Err(ConvertError::Kind {
            found: found.trim().to_owned(),
        });
    }
    let objects = template["objects"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let (vms, others): (Vec<_>, Vec<_>) = objects.iter().partition(|object| is_vm(object));
    let vm = match vms[..] {
        [] => return Err(ConvertError::NoVm),
        [vm] => vm,
        _ => return Err(ConvertError::SeveralVms { count: vms.len() }),
    };
    let warnings = others.into_iter().map(|object| {
        let part = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let kind = part("/kind").unwrap_or("object");
        let name = part("/metadata/name").unwrap_or_default();
        format!("left out: {kind} {name}; a template of VMs has only the VM")
    });
    let warnings = warnings.collect();
    let mut spec = json!({"virtualMachine": with_labels(vm, &template["labels"])});
    let parameters = template["parameters"].as_array().into_iter().flatten();
    let parameters: Vec<Value> = parameters
        .filter_map(Value::as_object)
        .map(|one| only(one, &PARAMETER))
        .collect();
    if !parameters.is_empty() {
        spec["parameters"] = parameters.into();
    }
    if let Some(message) = template["message"].as_str() {
        spec["message"] = message.into();
    }
    let metadata = template["metadata"].as_object();
    let metadata = metadata.map_or_else(|| json!({}), |metadata| only(metadata, &METADATA));
    let template = json!({
        "apiVersion": "template.kubevirt.io/v1beta1",
        "kind": "VirtualMachineTemplate",
        "metadata": metadata,
        "spec": spec,
    });
    Ok(Converted { template, warnings })
}

fn is_vm(object: &Value) -> bool {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    object["kind"] == "VirtualMachine" && api_version.starts_with("kubevirt.io/")
}

/// The VM in today's version, with the labels that the template puts on each of its objects.
fn with_labels(vm: &Value, labels: &Value) -> Value {
    let mut vm = vm.clone();
    vm["apiVersion"] = "kubevirt.io/v1".into();
    if let Value::Object(members) = &mut vm {
        members.shift_remove("status");
    }
    if let Some(metadata) = vm.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("creationTimestamp");
    }
    let labels = labels.as_object().filter(|labels| !labels.is_empty());
    let Some(labels) = labels else {
        return vm;
    };
    let mut all = labels.clone();
    let own = vm.pointer("/metadata/labels").and_then(Value::as_object);
    all.extend(own.cloned().unwrap_or_default());
    match vm.get_mut("metadata").and_then(Value::as_object_mut) {
        Some(metadata) => drop(metadata.insert("labels".to_owned(), all.into())),
        None => vm["metadata"] = json!({"labels": all}),
    }
    vm
}

/// Some members, in this order.
fn only(members: &Map<String, Value>, names: &[&str]) -> Value {
    let kept = names.iter().filter_map(|name| {
        let value = members.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    });
    kept.collect::<Map<_, _>>().into()
}
