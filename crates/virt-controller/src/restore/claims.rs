//! The claims of a restore: their names, and their objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::quantity::Amount;
use kubevirt_api::restore::{VirtualMachineRestore, VolumeRestoreOverride, VolumeRestorePolicy};
use kubevirt_api::snapshot::VolumeBackup;
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use kubevirt_api::{annotations, labels};
use reconcile::Key;
use serde_json::{Value, json};

/// Beginnings of annotations that belong to the old claim alone.
const DROPPED: [&str; 6] = [
    "pv.kubernetes.io",
    "volume.beta.kubernetes.io",
    "cdi.kubevirt.io",
    "volume.kubernetes.io",
    "k8s.io/CloneRequest",
    "k8s.io/CloneOf",
];
const KEPT: &str = "cdi.kubevirt.io/storage.contentType";

/// The mark of the restore on the objects that it has written.
pub(crate) fn mark(restore: &VirtualMachineRestore) -> String {
    let name = restore.metadata.name.as_deref().unwrap_or_default();
    format!("{name}-{}", uid(restore))
}

fn uid(restore: &VirtualMachineRestore) -> &str {
    restore.metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn is_in_place(restore: &VirtualMachineRestore) -> bool {
    restore.spec.volume_restore_policy == Some(VolumeRestorePolicy::InPlace)
}

fn exception<'a>(
    restore: &'a VirtualMachineRestore,
    volume: &str,
) -> Option<&'a VolumeRestoreOverride> {
    let mut all = restore.spec.volume_restore_overrides.iter();
    all.find(|one| one.volume_name.as_deref() == Some(volume))
}

/// The name of the claim of a restored volume.
pub(super) fn name(restore: &VirtualMachineRestore, backup: &VolumeBackup) -> String {
    let volume = &backup.volume_name;
    let given = exception(restore, volume).and_then(|one| one.restore_name.as_deref());
    if let Some(name) = given.filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    match restore.spec.volume_restore_policy {
        Some(VolumeRestorePolicy::InPlace) => old_name(backup).to_owned(),
        Some(VolumeRestorePolicy::PrefixTargetName) => {
            format!("{}-{volume}", restore.spec.target.name)
        }
        _ => format!("restore-{}-{volume}", uid(restore)),
    }
}

/// The name of the claim that was copied.
pub(super) fn old_name(backup: &VolumeBackup) -> &str {
    let metadata = backup.persistent_volume_claim.metadata.as_ref();
    metadata
        .and_then(|one| one.name.as_deref())
        .unwrap_or_default()
}

/// Whether the restore has created the claim.
pub(super) fn is_ours(restore: &VirtualMachineRestore, claim: &PersistentVolumeClaim) -> bool {
    let all = claim.metadata.annotations.as_ref();
    let found = all.and_then(|all| all.get(annotations::LAST_RESTORE_UID));
    found.is_some_and(|found| *found == mark(restore))
}

/// The claim of a restored volume.
pub(super) fn body(
    restore: &VirtualMachineRestore,
    key: &Key,
    backup: &VolumeBackup,
    copy: &VolumeSnapshot,
    source_vm: &str,
) -> Value {
    let old = backup
        .persistent_volume_claim
        .metadata
        .clone()
        .unwrap_or_default();
    let exception = exception(restore, &backup.volume_name);
    let mut marks = old.labels.unwrap_or_default();
    marks.insert(
        labels::RESTORE_SOURCE_VM_NAME.to_owned(),
        launcher_pod::label_value(source_vm),
    );
    marks.insert(
        labels::RESTORE_SOURCE_VM_NAMESPACE.to_owned(),
        key.namespace.clone(),
    );
    marks.extend(exception.map(|one| one.labels.clone()).unwrap_or_default());
    let is_kept =
        |name: &str| name == KEPT || !DROPPED.iter().any(|beginning| name.starts_with(beginning));
    let mut notes: BTreeMap<String, String> = old.annotations.unwrap_or_default();
    notes.retain(|name, _| is_kept(name));
    notes.extend(
        exception
            .map(|one| one.annotations.clone())
            .unwrap_or_default(),
    );
    notes.insert(
        annotations::RESTORE_NAME.to_owned(),
        restore.metadata.name.clone().unwrap_or_default(),
    );
    notes.insert(annotations::LAST_RESTORE_UID.to_owned(), mark(restore));
    let spec = spec_from_copy(backup, copy.metadata.name.as_deref(), Some(copy));
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": marks,
            "annotations": notes,
        },
        "spec": spec,
    })
}

/// The spec of a claim that is restored from the volume snapshot of this name: that of the claim that was
/// copied, large enough for the copy, if that is known.
pub(crate) fn spec_from_copy(
    backup: &VolumeBackup,
    name: Option<&str>,
    copy: Option<&VolumeSnapshot>,
) -> Value {
    let mut spec = json!(
        backup
            .persistent_volume_claim
            .spec
            .clone()
            .unwrap_or_default()
    );
    if let Some(members) = spec.as_object_mut() {
        members.remove("volumeName");
        members.remove("dataSourceRef");
    }
    spec["dataSource"] = json!({
        "apiGroup": VolumeSnapshot::GROUP,
        "kind": VolumeSnapshot::KIND,
        "name": name,
    });
    if let Some(size) = copy.and_then(|copy| size(&spec, copy)) {
        spec["resources"]["requests"]["storage"] = size.into();
    }
    spec
}

/// The size of the snapshot, if the old request was smaller.
fn size(spec: &Value, copy: &VolumeSnapshot) -> Option<String> {
    let smallest = copy.status.as_ref()?.restore_size.clone()?;
    let wanted = spec.pointer("/resources/requests/storage");
    let wanted = wanted.and_then(Value::as_str);
    let wanted = wanted.and_then(|text| Amount::parse(&Quantity(text.to_owned())).ok());
    let least = Amount::parse(&smallest).ok()?;
    (wanted.is_none_or(|wanted| wanted < least)).then_some(smallest.0)
}
