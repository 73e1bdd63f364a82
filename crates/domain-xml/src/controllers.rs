//! Controllers, among them the PCI Express ports.

use kubevirt_api::annotations;
use model::Architecture;

use crate::disks::Disk;
use crate::element::Element;
use crate::host_devices::HostDevice;
use crate::interfaces::Interface;
use crate::layout::{self, Address, Layout, Placement};
use crate::peripherals::Peripherals;
use crate::{Input, os, virtio};

#[derive(Debug)]
pub(crate) struct Controllers {
    usb: &'static str,
    scsi: Option<&'static str>,
    serial: &'static str,
    /// Of the virtio controllers.
    driver: Option<Element>,
    /// The model of the PCI bus of the machine.
    root: &'static str,
    /// Without the 64-bit PCI hole.
    has_no_hole: bool,
    pub(crate) layout: Layout,
}

/// The devices that need a controller or an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) disks: &'a [Disk<'a>],
    pub(crate) interfaces: &'a [Interface<'a>],
    pub(crate) host_devices: &'a [HostDevice],
    pub(crate) peripherals: &'a Peripherals<'a>,
}

pub(crate) fn of(input: &Input<'_>, all: &Placed<'_>, memory: u64) -> Controllers {
    let Placed {
        disks,
        interfaces,
        host_devices,
        peripherals,
    } = *all;
    let devices = &input.guest.vmi.spec.domain.devices;
    let has_hotplug = devices.disable_hotplug != Some(true);
    let architecture = input.guest.architecture;
    let needs_usb = disks.iter().any(Disk::is_usb)
        || host_devices.iter().any(HostDevice::is_usb)
        || peripherals.has_usb();
    let usb = needs_usb || architecture == Architecture::Arm64;
    let scsi = has_hotplug || disks.iter().any(Disk::is_scsi);
    let model = virtio::model(input.guest);
    let annotation = |name: &str| {
        let value = input.guest.vmi.metadata.annotations.as_ref()?.get(name)?;
        Some(value.as_str())
    };
    let is_true = |name: &str| annotation(name) == Some("true");
    let has_express = os::has_pci_express(input.guest);
    let placement = if !has_express {
        Placement::None
    } else if is_true(annotations::PLACE_PCI_DEVICES_ON_ROOT_COMPLEX) {
        Placement::RootComplex
    } else if virtio::is_transitional(input.guest) {
        Placement::Automatic
    } else if has_hotplug {
        Placement::Ports
    } else {
        Placement::PortsWithoutHotplug
    };
    let mut placed = layout::Devices {
        filesystems: input.guest.filesystems.len(),
        interfaces: interfaces.iter().map(Interface::plug).collect(),
        usb_controllers: usize::from(usb),
        scsi_controllers: usize::from(scsi),
        serial_controllers: 1,
        disks: disks.iter().filter(|disk| disk.needs_address()).count(),
        passed_through: host_devices
            .iter()
            .filter(|one| one.needs_address())
            .count(),
        taken: interfaces
            .iter()
            .filter_map(Interface::taken_address)
            .chain(disks.iter().filter_map(Disk::taken_address))
            .chain(host_devices.iter().filter_map(HostDevice::taken_address))
            .collect(),
        ..layout::Devices::default()
    };
    peripherals.count(&mut placed);
    let slot_count = annotation(annotations::PCI_INTERFACE_SLOT_COUNT);
    let slot_count = slot_count.and_then(|count| count.parse().ok());
    Controllers {
        usb: if usb { "qemu-xhci" } else { "none" },
        scsi: scsi.then_some(match architecture {
            Architecture::S390x => "virtio-scsi",
            _ => model,
        }),
        serial: model,
        driver: virtio::driver(input.guest),
        root: if has_express { "pcie-root" } else { "pci-root" },
        has_no_hole: is_true(annotations::DISABLE_PCI_HOLE64),
        layout: layout::lay_out(&placed, placement, memory, slot_count),
    }
}

impl Controllers {
    pub(crate) fn render(&self) -> Vec<Element> {
        let Layout {
            ports,
            usb,
            scsi,
            serial,
            bridge,
            ..
        } = self.layout;
        let controller = |kind: &'static str, index: usize, model: &'static str| {
            Element::new("controller")
                .attr("type", kind)
                .attr("index", index)
                .attr("model", model)
        };
        let at = |element: Element, address: Option<Address>| {
            element.children(address.map(Address::render))
        };
        let mut all = vec![at(controller("usb", 0, self.usb), usb)];
        all.extend(self.scsi.map(|model| {
            at(
                controller("scsi", 0, model).children(self.driver.clone()),
                scsi,
            )
        }));
        // The channel of the guest agent needs it even without a console.
        let channels = controller("virtio-serial", 0, self.serial);
        all.push(at(channels.children(self.driver.clone()), serial));
        if self.has_no_hole || ports > 0 {
            let hole = Element::new("pcihole64").attr("unit", "KiB").text(0);
            all.push(controller("pci", 0, self.root).children(self.has_no_hole.then_some(hole)));
        }
        all.extend((1..=ports).map(|index| controller("pci", index, "pcie-root-port")));
        // Without an address libvirt would plug it into the first port that is free.
        all.extend(bridge.map(|address| {
            at(
                controller("pci", ports + 1, "pcie-to-pci-bridge"),
                Some(address),
            )
        }));
        all
    }
}
