//! Finds an existing volume that satisfies a claim.

use k8s_openapi::api::core::v1::PersistentVolume;
use kubevirt_api::quantity::Amount;

use super::{
    Observed,
    fields::{mode, requested, volume_mode},
};
use crate::selector::selects;

/// The smallest free volume of that class that satisfies the claim.
pub(super) fn fitting(observed: &Observed<'_>, class: &str) -> Option<String> {
    let claim = observed.claim.spec.as_ref()?;
    let wanted = requested(observed.claim)?;
    let fits = |volume: &PersistentVolume| -> Option<(Amount, String)> {
        let spec = volume.spec.as_ref()?;
        let capacity = Amount::parse(spec.capacity.as_ref()?.get("storage")?).ok()?;
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        let all_modes = claim
            .access_modes
            .iter()
            .flatten()
            .all(|mode| modes.contains(mode));
        let labels = claim
            .selector
            .as_ref()
            .is_none_or(|selector| selects(selector, volume.metadata.labels.as_ref()));
        let fits = spec.claim_ref.is_none()
            && volume.metadata.deletion_timestamp.is_none()
            && spec.storage_class_name.as_deref().unwrap_or_default() == class
            && volume_mode(spec.volume_mode.as_deref()) == mode(observed.claim)
            && capacity >= wanted
            && all_modes
            && labels;
        fits.then(|| Some((capacity, volume.metadata.name.clone()?)))?
    };
    let all = observed.volumes.iter().filter_map(|volume| fits(volume));
    all.min().map(|(_, name)| name)
}
