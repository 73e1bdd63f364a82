//! The names of what an export makes, and its owner reference.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kubevirt_api::export::VirtualMachineExport;
use sha2::{Digest as _, Sha256};

pub(super) fn name(export: &VirtualMachineExport) -> &str {
    export.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn uid(export: &VirtualMachineExport) -> &str {
    export.metadata.uid.as_deref().unwrap_or_default()
}

/// Of the pod and the service, whose names have no dots.
pub(super) fn server(export: &VirtualMachineExport) -> String {
    let name = name(export);
    if !name.contains('.') {
        return launcher_pod::label_value(&format!("virt-export-{name}"));
    }
    // Another export may have a dash in this place.
    let suffix: String = uid(export).chars().take(8).collect();
    let name = name.replace('.', "-");
    launcher_pod::label_value(&format!("virt-export-{name}-{suffix}"))
}

/// Of the Secret with a token that the user chose.
pub(super) fn given_token(export: &VirtualMachineExport) -> Option<&str> {
    let given = export.spec.token_secret_ref.as_deref();
    given.filter(|name| !name.is_empty())
}

/// Of the Secret with the token, if none was given: the usual name, and one for when that is taken.
pub(super) fn tokens(export: &VirtualMachineExport, suffix: &str) -> [String; 2] {
    let name = format!("export-token-{}", name(export));
    [
        launcher_pod::label_value(&name),
        launcher_pod::label_value(&format!("{name}-{suffix}")),
    ]
}

/// Of the `ConfigMap` with these manifests: one of other contents has another name.
pub(super) fn manifests(export: &VirtualMachineExport, contents: &str) -> String {
    let name = launcher_pod::label_value(&format!("exporter-vm-manifest-{}", name(export)));
    let digest = Sha256::digest(contents.as_bytes());
    let beginning = digest.as_slice().first_chunk().copied();
    let beginning = u64::from_be_bytes(beginning.unwrap_or_default());
    format!("{name}-{beginning:016x}")
}

/// Of the `ConfigMap` with the authority, in a manifest.
pub(super) fn authority(export: &VirtualMachineExport) -> String {
    launcher_pod::label_value(&format!("export-ca-cm-{}", name(export)))
}

/// Of the Secret with the token as a header, in a manifest.
pub(super) fn header(export: &VirtualMachineExport) -> String {
    launcher_pod::label_value(&format!("header-secret-{}", name(export)))
}

/// The export as the controlling owner of what it makes.
pub(super) fn owner(export: &VirtualMachineExport) -> OwnerReference {
    OwnerReference {
        api_version: VirtualMachineExport::API_VERSION.to_owned(),
        kind: VirtualMachineExport::KIND.to_owned(),
        name: name(export).to_owned(),
        uid: uid(export).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whether the export controls the object: names prove nothing.
pub(super) fn is_of(object: &impl Resource, export: &VirtualMachineExport) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == uid(export))
}
