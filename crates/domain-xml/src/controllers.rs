//! Controllers, and the PCI Express ports kept free for devices plugged in later.

use crate::disks::Disk;
use crate::element::Element;
use crate::interfaces::Interface;
use crate::peripherals::Peripherals;
use crate::{Input, virtio};

/// A guest with at most this much memory gets fewer ports.
const SMALL_GUEST: u64 = 2 << 30;
/// Most ports that libvirt lays out below the root.
const MAX_PORTS: usize = 31;

#[derive(Debug)]
pub(crate) struct Controllers {
    usb: &'static str,
    scsi: Option<&'static str>,
    serial: Option<&'static str>,
    /// PCI Express root ports, used and free.
    ports: usize,
    /// Without the 64-bit PCI hole.
    has_no_hole: bool,
}

pub(crate) fn of(
    input: &Input<'_>,
    disks: &[Disk<'_>],
    interfaces: &[Interface<'_>],
    peripherals: &Peripherals<'_>,
    memory: u64,
) -> Controllers {
    let devices = &input.guest.vmi.spec.domain.devices;
    let has_hotplug = devices.disable_hotplug != Some(true);
    let usb = disks.iter().any(Disk::is_usb) || peripherals.has_usb();
    let scsi = has_hotplug || disks.iter().any(Disk::is_scsi);
    let model = virtio::model(input.guest);
    let serial = devices.autoattach_serial_console != Some(false);
    let used = disks.iter().filter(|disk| disk.is_virtio()).count()
        + interfaces.len()
        + peripherals.pcie_devices()
        + usize::from(usb)
        + usize::from(scsi)
        // The guest agent's channel needs the serial controller even without a console.
        + 1;
    let (total, least_free) = if memory <= SMALL_GUEST {
        (8, 3)
    } else {
        (16, 6)
    };
    let free = if has_hotplug {
        least_free.max(total - used.min(total))
    } else {
        0
    };
    let annotation = |name: &str| input.guest.vmi.metadata.annotations.as_ref()?.get(name);
    Controllers {
        usb: if usb { "qemu-xhci" } else { "none" },
        scsi: scsi.then_some(model),
        serial: serial.then_some(model),
        ports: if has_hotplug {
            (used + free).min(MAX_PORTS)
        } else {
            0
        },
        has_no_hole: annotation("kubevirt.io/disablePCIHole64")
            .is_some_and(|value| value == "true"),
    }
}

impl Controllers {
    pub(crate) fn render(&self) -> Vec<Element> {
        let controller = |kind: &'static str, index: usize, model: &'static str| {
            Element::new("controller")
                .attr("type", kind)
                .attr("index", index)
                .attr("model", model)
        };
        let mut all = vec![controller("usb", 0, self.usb)];
        all.extend(self.scsi.map(|model| controller("scsi", 0, model)));
        all.extend(
            self.serial
                .map(|model| controller("virtio-serial", 0, model)),
        );
        if self.has_no_hole || self.ports > 0 {
            let hole = Element::new("pcihole64").attr("unit", "KiB").text(0);
            all.push(controller("pci", 0, "pcie-root").children(self.has_no_hole.then_some(hole)));
        }
        // libvirt fills the ports in order; those left over are free for hotplug.
        all.extend((1..=self.ports).map(|index| controller("pci", index, "pcie-root-port")));
        all
    }
}
