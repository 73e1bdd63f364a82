//! The model of virtio devices.

use model::{Architecture, Guest};

use crate::element::Element;

/// Whether the devices are those of older drivers, too; they take conventional PCI only.
pub(crate) fn is_transitional(guest: &Guest<'_>) -> bool {
    guest.vmi.spec.domain.devices.use_virtio_transitional == Some(true)
}

/// The model of every virtio device that has versions.
pub(crate) fn model(guest: &Guest<'_>) -> &'static str {
    if guest.architecture == Architecture::S390x {
        "virtio"
    } else if is_transitional(guest) {
        "virtio-transitional"
    } else {
        "virtio-non-transitional"
    }
}

/// The driver of a device that cannot read a confidential guest's memory by itself.
pub(crate) fn driver(guest: &Guest<'_>) -> Option<Element> {
    iommu(guest).map(|iommu| Element::new("driver").attr("iommu", iommu))
}

/// The value of a driver's attribute of that name.
pub(crate) fn iommu(guest: &Guest<'_>) -> Option<&'static str> {
    guest.is_confidential().then_some("on")
}
