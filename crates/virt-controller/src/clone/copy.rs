//! The restore that makes the clone, and the patches that tell it from its source: pure.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubevirt_api::clone::{VirtualMachineClone, VirtualMachineCloneSpec as Spec, VolumeNamePolicy};
use kubevirt_api::restore::{
    VirtualMachineRestore, VirtualMachineRestoreSpec, VolumeRestorePolicy,
};
use kubevirt_api::{GROUP, VirtualMachine, annotations};
use model::KeyFilters;
use serde_json::{Map, Value, json};

const INTERFACES: &str = "/spec/template/spec/domain/devices/interfaces";
const FIRMWARE: &str = "/spec/template/spec/domain/firmware";
/// Maximum length of an object's name.
const MAX_NAME: usize = 253;
/// Length of the suffix of a generated name.
const SUFFIX_LENGTH: usize = 5;

fn uid(clone: &VirtualMachineClone) -> &str {
    clone.metadata.uid.as_deref().unwrap_or_default()
}

/// The name of the snapshot that a clone of a VM takes.
pub(super) fn own_snapshot_name(clone: &VirtualMachineClone) -> String {
    format!("tmp-snapshot-{}", uid(clone))
}

pub(super) fn restore_name(clone: &VirtualMachineClone) -> String {
    format!("tmp-restore-{}", uid(clone))
}

/// The name of the new VM. Admission fills it in; this is for clones that were written without it.
pub(super) fn target_name(clone: &VirtualMachineClone, source_vm: &str) -> String {
    let given = clone.spec.target.as_ref().map(|target| &target.name);
    if let Some(name) = given.filter(|name| !name.is_empty()) {
        return name.clone();
    }
    let suffix: String = uid(clone).chars().take(SUFFIX_LENGTH).collect();
    let most = MAX_NAME - "-clone-".len() - SUFFIX_LENGTH;
    let source: String = source_vm.chars().take(most).collect();
    format!("{source}-clone-{suffix}")
}

/// The clone as the controlling owner of its helpers.
pub(super) fn owner(clone: &VirtualMachineClone) -> OwnerReference {
    OwnerReference {
        api_version: VirtualMachineClone::API_VERSION.to_owned(),
        kind: VirtualMachineClone::KIND.to_owned(),
        name: clone.metadata.name.clone().unwrap_or_default(),
        uid: uid(clone).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The restore to a new VM; the message if the clone cannot be made of this source.
pub(super) fn restore(
    clone: &VirtualMachineClone,
    snapshot: &str,
    source: &Value,
) -> Result<VirtualMachineRestore, String> {
    let source_vm = source["metadata"]["name"].as_str().unwrap_or_default();
    let policy = match &clone.spec.volume_name_policy {
        Some(VolumeNamePolicy::PrefixTargetName) => VolumeRestorePolicy::PrefixTargetName,
        _ => VolumeRestorePolicy::RandomizeNames,
    };
    let spec = VirtualMachineRestoreSpec {
        target: TypedLocalObjectReference {
            api_group: Some(GROUP.to_owned()),
            kind: VirtualMachine::KIND.to_owned(),
            name: target_name(clone, source_vm),
        },
        virtual_machine_snapshot_name: snapshot.to_owned(),
        volume_restore_policy: Some(policy),
        patches: patches(&clone.spec, source)?,
        ..VirtualMachineRestoreSpec::default()
    };
    Ok(VirtualMachineRestore {
        metadata: ObjectMeta {
            name: Some(restore_name(clone)),
            namespace: clone.metadata.namespace.clone(),
            owner_references: Some(vec![owner(clone)]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    })
}

/// Whether all filters can be used.
pub(super) fn check_filters(spec: &Spec) -> Result<(), String> {
    Filters::of(spec).map(drop)
}

/// What a new VM of the source must not have, then the patches of the user.
fn patches(spec: &Spec, source: &Value) -> Result<Vec<String>, String> {
    let mut all = mac_addresses(spec, source)?;
    all.extend(identity(spec, source));
    for (path, filters) in &Filters::of(spec)?.0 {
        all.extend(filtered(source, path, filters));
    }
    let mut patches: Vec<String> = all.iter().map(Value::to_string).collect();
    patches.extend(spec.patches.iter().cloned());
    Ok(patches)
}

/// Interfaces lose their addresses, or get those that the clone names.
fn mac_addresses(spec: &Spec, source: &Value) -> Result<Vec<Value>, String> {
    let interfaces = source.pointer(INTERFACES).and_then(Value::as_array);
    let interfaces = interfaces.map_or(&[][..], Vec::as_slice);
    let given = &spec.new_mac_addresses;
    let has_interface = |name: &String| interfaces.iter().any(|one| one["name"] == **name);
    if let Some(unknown) = given.keys().find(|name| !has_interface(name)) {
        return Err(format!(
            "spec.newMacAddresses: the source has no interface {unknown}"
        ));
    }
    let patches = interfaces.iter().enumerate().filter_map(|(index, one)| {
        let name = one["name"].as_str().unwrap_or_default();
        let wanted = given.get(name).filter(|address| !address.is_empty());
        let path = format!("{INTERFACES}/{index}/macAddress");
        replace(&path, wanted, one.get("macAddress").is_some())
    });
    Ok(patches.collect())
}

/// The firmware's UUID goes, and its serial number, unless the clone names another. Admission fills in new ones.
fn identity(spec: &Spec, source: &Value) -> Vec<Value> {
    let serial = spec.new_smbios_serial.as_ref();
    let serial = serial.filter(|serial| !serial.is_empty());
    let Some(firmware) = source.pointer(FIRMWARE).filter(|one| one.is_object()) else {
        let new = serial.map(|serial| json!({"serial": serial}));
        return new
            .map(|new| json!({"op": "add", "path": FIRMWARE, "value": new}))
            .into_iter()
            .collect();
    };
    let has = |field: &str| firmware.get(field).is_some();
    [
        replace(&format!("{FIRMWARE}/serial"), serial, has("serial")),
        replace(&format!("{FIRMWARE}/uuid"), None, has("uuid")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The operation that leaves a field with the wanted value, or without any.
fn replace(path: &str, wanted: Option<&String>, exists: bool) -> Option<Value> {
    match wanted {
        Some(value) => Some(json!({"op": "add", "path": path, "value": value})),
        None => exists.then(|| json!({"op": "remove", "path": path})),
    }
}

/// The filters of each part of the metadata.
struct Filters([(&'static str, KeyFilters); 4]);

impl Filters {
    fn of(spec: &Spec) -> Result<Self, String> {
        let parse = |field: &str, list: &[String]| {
            KeyFilters::parse(list).map_err(|error| format!("{field}: {error}"))
        };
        let template = spec.template.clone().unwrap_or_default();
        Ok(Self([
            (
                "/metadata/labels",
                parse("spec.labelFilters", &spec.label_filters)?,
            ),
            (
                "/metadata/annotations",
                parse("spec.annotationFilters", &spec.annotation_filters)?,
            ),
            (
                "/spec/template/metadata/labels",
                parse("spec.template.labelFilters", &template.label_filters)?,
            ),
            (
                "/spec/template/metadata/annotations",
                parse(
                    "spec.template.annotationFilters",
                    &template.annotation_filters,
                )?,
            ),
        ]))
    }
}

/// Removes the keys that the filters do not select. The mark of an earlier restore is replaced by that of the next.
fn filtered(source: &Value, path: &str, filters: &KeyFilters) -> Vec<Value> {
    let all = source.pointer(path).and_then(Value::as_object);
    let keys = all.into_iter().flat_map(Map::keys);
    let dropped = keys.filter(|key| {
        key.as_str() != annotations::LAST_RESTORE_UID && !filters.selects(key.as_str())
    });
    dropped
        .map(|key| {
            let escaped = key.replace('~', "~0").replace('/', "~1");
            json!({"op": "remove", "path": format!("{path}/{escaped}")})
        })
        .collect()
}
