//! Reads the fields of claims.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use kubevirt_api::quantity::Amount;

use super::super::backing::Mode;

/// The deprecated form of `storageClassName`.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(crate) fn has_finalizer(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    name: &str,
) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == name)
}

pub(super) fn annotation<'a>(claim: &'a PersistentVolumeClaim, name: &str) -> Option<&'a str> {
    let value = claim.metadata.annotations.as_ref()?.get(name)?;
    (!value.is_empty()).then_some(value.as_str())
}

pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

pub(super) fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, OLD_CLASS).or_else(|| claim.spec.as_ref()?.storage_class_name.as_deref())
}

pub(crate) fn phase(claim: &PersistentVolumeClaim) -> &str {
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    phase.unwrap_or_default()
}

pub(super) fn mode(claim: &PersistentVolumeClaim) -> Mode {
    volume_mode(claim.spec.as_ref().and_then(|s| s.volume_mode.as_deref()))
}

pub(crate) fn volume_mode(mode: Option<&str>) -> Mode {
    match mode {
        Some("Block") => Mode::Block,
        _ => Mode::Filesystem,
    }
}

pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Option<Amount> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    Amount::parse(resources.requests.as_ref()?.get("storage")?).ok()
}

/// Whether the reference names the claim.
pub(super) fn is_for(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace
}
