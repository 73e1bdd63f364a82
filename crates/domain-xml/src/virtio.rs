//! The model of virtio devices.

use model::Guest;

/// The model of every virtio device that has versions.
pub(crate) fn model(guest: &Guest<'_>) -> &'static str {
    if guest.vmi.spec.domain.devices.use_virtio_transitional == Some(true) {
        "virtio-transitional"
    } else {
        "virtio-non-transitional"
    }
}
