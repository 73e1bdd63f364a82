//! Devices of the node that the guest drives itself: PCI, mediated and USB devices, and virtual functions of
//! network cards (SR-IOV).

use std::collections::BTreeMap;

use model::{Binding, DeviceAddress, DeviceSource, Display, HostDeviceList, PciAddress};

use crate::element::Element;
use crate::layout::{self, Address};
use crate::{Input, RenderError};

/// A device of the domain. A USB resource may be several of them.
#[derive(Debug)]
pub(crate) struct HostDevice {
    alias: String,
    address: DeviceAddress,
    display: Option<Display>,
    boot_order: Option<u64>,
    /// The address that the user gave.
    taken: Option<PciAddress>,
}

pub(crate) fn of(input: &Input<'_>) -> Result<Vec<HostDevice>, RenderError> {
    let mut all = allocated(input)?;
    all.extend(virtual_functions(input)?);
    Ok(all)
}

/// Takes the devices of each resource in the order of the VMI.
fn allocated(input: &Input<'_>) -> Result<Vec<HostDevice>, RenderError> {
    let requested = input.guest.host_devices();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for device in &requested {
        if let DeviceSource::Resource(resource) = device.source {
            *counts.entry(resource).or_default() += 1;
        }
    }
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for device in &requested {
        let resource = match device.source {
            DeviceSource::Resource(resource) => resource,
            DeviceSource::Claim { claim, request } => {
                all.push(claimed(
                    input,
                    device,
                    (claim, request.unwrap_or_default()),
                )?);
                continue;
            }
            DeviceSource::Missing => return Err(RenderError::missing(device.field("deviceName"))),
        };
        let allocated = input.facts.allocated.of_resource(resource);
        let count = counts.get(resource).copied().unwrap_or(1);
        let share = share(allocated, count);
        let position = taken.entry(resource).or_default();
        let addresses = allocated.get(*position..*position + share);
        let addresses = addresses.filter(|addresses| !addresses.is_empty());
        let addresses = addresses.ok_or_else(|| {
            let problem = format!(
                "the pod was allocated no device of {resource}: its device plugin named {} for {count} requested",
                allocated.len()
            );
            RenderError::invalid(device.field("deviceName"), &problem)
        })?;
        *position += share;
        for (number, address) in addresses.iter().enumerate() {
            check_display(device, *address)?;
            all.push(HostDevice {
                alias: alias(device.list, *address, device.name, number),
                address: *address,
                display: device.display,
                boot_order: None,
                taken: None,
            });
        }
    }
    Ok(all)
}

/// The device of a request in a resource claim.
fn claimed(
    input: &Input<'_>,
    device: &model::HostDevice<'_>,
    (claim, request): (&str, &str),
) -> Result<HostDevice, RenderError> {
    let address = input.facts.allocated.of_claim(claim, request);
    let address = address.ok_or_else(|| {
        let problem = format!("the pod has no device of request {request} in claim {claim}");
        RenderError::invalid(device.field("claimName"), &problem)
    })?;
    check_display(device, address)?;
    let kind = match device.list {
        HostDeviceList::Gpus => "gpu",
        HostDeviceList::HostDevices => "hostdevice",
    };
    Ok(HostDevice {
        alias: format!("dra-{kind}-{}", device.name),
        address,
        display: device.display,
        boot_order: None,
        taken: None,
    })
}

fn check_display(
    device: &model::HostDevice<'_>,
    address: DeviceAddress,
) -> Result<(), RenderError> {
    let wants_display = device.display.is_some_and(|display| display.is_explicit);
    if wants_display && !matches!(address, DeviceAddress::Mediated(_)) {
        let problem = "only a mediated device has a screen; leave it out";
        let field = device.field("virtualGPUOptions.display");
        return Err(RenderError::invalid(field, problem));
    }
    Ok(())
}

/// The devices of SR-IOV interfaces. The network plugin has set their hardware addresses.
fn virtual_functions(input: &Input<'_>) -> Result<Vec<HostDevice>, RenderError> {
    let interfaces = input.guest.plugged_interfaces();
    let functions = interfaces.filter(|interface| interface.binding == Binding::Sriov);
    let devices = functions.map(|interface| {
        let name = interface.name();
        let function = input.facts.virtual_functions.get(name);
        let function = function.ok_or_else(|| RenderError::NotPlumbed {
            interface: name.to_owned(),
        })?;
        let spec = interface.spec;
        let given = spec.pci_address.as_deref();
        Ok(HostDevice {
            alias: format!("sriov-{name}"),
            address: DeviceAddress::Pci(*function),
            display: None,
            boot_order: spec.boot_order,
            taken: layout::taken(given, || interface.field("pciAddress"))?,
        })
    });
    devices.collect()
}

/// Devices for each element of the VMI: one unit of a USB resource may be several devices.
fn share(allocated: &[DeviceAddress], requested: usize) -> usize {
    match allocated.first() {
        Some(DeviceAddress::Usb(_)) if allocated.len().is_multiple_of(requested) => {
            allocated.len() / requested
        }
        _ => 1,
    }
}

fn alias(list: HostDeviceList, address: DeviceAddress, name: &str, number: usize) -> String {
    let kind = match (list, address) {
        (_, DeviceAddress::Usb(_)) => "usb-host",
        (HostDeviceList::Gpus, _) => "gpu",
        (HostDeviceList::HostDevices, _) => "hostdevice",
    };
    match number {
        0 => format!("{kind}-{name}"),
        further => format!("{kind}-{name}-{further}"),
    }
}

pub(crate) fn render(devices: &[HostDevice], addresses: &[Option<Address>]) -> Vec<Element> {
    let mut addresses = addresses.iter().copied();
    let all = devices.iter().map(|device| {
        let address = device.needs_address().then(|| addresses.next().flatten());
        device.render(address.flatten())
    });
    all.collect()
}

impl HostDevice {
    pub(crate) fn is_usb(&self) -> bool {
        matches!(self.address, DeviceAddress::Usb(_))
    }

    /// Whether the guest finds it on its PCI bus, at an address that the layout chooses.
    pub(crate) fn needs_address(&self) -> bool {
        !self.is_usb() && self.taken.is_none()
    }

    /// The PCI address that the user gave.
    pub(crate) fn taken_address(&self) -> Option<PciAddress> {
        self.taken
    }

    fn render(&self, address: Option<Address>) -> Element {
        let device = Element::new("hostdev").attr("mode", "subsystem");
        let source = Element::new("source");
        let device = match self.address {
            DeviceAddress::Pci(pci) => device
                .attr("type", "pci")
                .attr("managed", "no")
                .child(source.child(pci_source(pci))),
            DeviceAddress::Mediated(uuid) => {
                let on = |is_on: bool| if is_on { "on" } else { "off" };
                let display = self.display;
                device
                    .attr("type", "mdev")
                    .attr("model", "vfio-pci")
                    .attr_if("display", display.map(|display| on(display.is_enabled)))
                    .attr_if("ramfb", display.map(|display| on(display.has_boot_picture)))
                    .child(source.child(Element::new("address").attr("uuid", uuid)))
            }
            DeviceAddress::Usb(usb) => {
                let at = Element::new("address")
                    .attr("bus", usb.bus)
                    .attr("device", usb.device);
                device
                    .attr("type", "usb")
                    .attr("managed", "no")
                    .child(source.child(at))
            }
        };
        let order = self.boot_order;
        device
            .children(order.map(|order| Element::new("boot").attr("order", order)))
            .children(address.map(Address::render))
            .children(self.taken.map(layout::render_taken))
            .alias(&self.alias)
    }
}

/// The address of a PCI device of the node.
pub(crate) fn pci_source(address: PciAddress) -> Element {
    Element::new("address")
        .attr("domain", format!("{:#06x}", address.domain))
        .attr("bus", format!("{:#04x}", address.bus))
        .attr("slot", format!("{:#04x}", address.slot))
        .attr("function", format!("{:#x}", address.function))
}
