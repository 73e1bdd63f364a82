//! Reads the fields of claims.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use kubevirt_api::{quantity::Amount, volume_snapshot::VolumeSnapshot};

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

/// What a new volume of the claim contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataSource {
    None,
    /// A volume snapshot of the claim's namespace.
    Snapshot(String),
    /// Another claim of the claim's namespace.
    Claim(String),
}

/// The data source of the claim; a source of another kind or namespace is the error.
pub(crate) fn data_source(claim: &PersistentVolumeClaim) -> Result<DataSource, String> {
    let Some(spec) = &claim.spec else {
        return Ok(DataSource::None);
    };
    let (group, kind, name, namespace) = match (&spec.data_source_ref, &spec.data_source) {
        (Some(one), _) => (&one.api_group, &one.kind, &one.name, one.namespace.as_ref()),
        (None, Some(one)) => (&one.api_group, &one.kind, &one.name, None),
        (None, None) => return Ok(DataSource::None),
    };
    let is_here = namespace.is_none_or(|there| claim.metadata.namespace.as_ref() == Some(there));
    match (group.as_deref().unwrap_or_default(), kind.as_str()) {
        (VolumeSnapshot::GROUP, VolumeSnapshot::KIND) if is_here => {
            Ok(DataSource::Snapshot(name.clone()))
        }
        ("", "PersistentVolumeClaim") if is_here => Ok(DataSource::Claim(name.clone())),
        (group, _) => {
            let namespace = namespace.map(|namespace| format!(" in namespace {namespace}"));
            let namespace = namespace.unwrap_or_default();
            Err(format!("{kind} {name:?} of {group:?}{namespace}"))
        }
    }
}

/// Whether the reference names the claim.
pub(super) fn is_for(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace
}
