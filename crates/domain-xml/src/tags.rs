//! Where the guest finds the devices that the user has tagged, for the guest's metadata.

use std::collections::BTreeMap;

use kubevirt_api::devices::Devices;
use model::PciAddress;

use crate::element::Element;

/// A device with a tag, at an address where the guest finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedDevice {
    pub kind: TaggedKind,
    pub bus: TaggedBus,
    /// Such as `0000:01:00.0`, or `0:0:0:1` on the bus SCSI.
    pub address: String,
    /// Hardware address of an interface. That of a virtual function is known if the user chose it: the node's card
    /// has it.
    pub mac: Option<String>,
    /// Serial number of a disk.
    pub serial: Option<String>,
    /// What of the guest is near to a device of the node.
    pub near: Near,
    pub tag: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaggedKind {
    Interface,
    HostDevice,
    Disk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaggedBus {
    Pci,
    Scsi,
}

/// The part of a guest that is on the same NUMA cell of the host as a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Near {
    /// The guest's cell, if it sees those of the host.
    pub cell: Option<u32>,
    /// Else the virtual CPUs with CPUs of their own there.
    pub cpus: Vec<u32>,
}

/// What the user says about a device.
struct Tag<'a> {
    kind: TaggedKind,
    text: &'a str,
    /// The hardware address that the user chose for a virtual function.
    mac: Option<&'a str>,
    serial: Option<&'a str>,
}

/// The rendered devices of a domain that may have tags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rendered<'a> {
    pub(crate) disks: &'a [Element],
    pub(crate) interfaces: &'a [Element],
    pub(crate) host_devices: &'a [Element],
}

/// Tags by the alias of the device.
type Tags<'a> = BTreeMap<String, Tag<'a>>;

/// Whether any device has a tag.
pub(crate) fn has_tags(devices: &Devices) -> bool {
    let (interfaces, others) = by_alias(devices);
    !interfaces.is_empty() || !others.is_empty() || !of_disks(devices).is_empty()
}

/// The tagged ones of the rendered devices. A device whose address libvirt chooses, or that is neither on the PCI bus
/// nor on the bus SCSI, is left out. `near` is what of the guest is near to a PCI device of the node.
pub(crate) fn of(
    devices: &Devices,
    rendered: Rendered<'_>,
    near: impl Fn(PciAddress) -> Near,
) -> Vec<TaggedDevice> {
    let (of_interfaces, of_others) = by_alias(devices);
    let found = |elements: &[Element], tags: &Tags<'_>| -> Vec<TaggedDevice> {
        let tagged = elements
            .iter()
            .filter_map(|element| tagged(element, tags, &near));
        tagged.collect()
    };
    let mut all = found(rendered.interfaces, &of_interfaces);
    all.extend(found(rendered.host_devices, &of_others));
    all.extend(found(rendered.disks, &of_disks(devices)));
    all
}

fn of_disks(devices: &Devices) -> Tags<'_> {
    let tagged = devices.disks.iter().filter_map(|disk| {
        let tag = Tag {
            kind: TaggedKind::Disk,
            text: given(disk.tag.as_deref())?,
            mac: None,
            serial: given(disk.serial.as_deref()),
        };
        Some((format!("ua-{}", disk.name), tag))
    });
    tagged.collect()
}

/// The tags of interfaces, and those of devices of the node.
fn by_alias(devices: &Devices) -> (Tags<'_>, Tags<'_>) {
    use TaggedKind::{HostDevice, Interface};
    let mut of_interfaces = Tags::new();
    let mut of_others = Tags::new();
    for one in &devices.interfaces {
        if let Some(tag) = given(one.tag.as_deref()) {
            let tag = |mac| Tag {
                kind: Interface,
                text: tag,
                mac,
                serial: None,
            };
            of_interfaces.insert(format!("ua-{}", one.name), tag(None));
            let mac = given(one.mac_address.as_deref());
            of_others.insert(format!("ua-sriov-{}", one.name), tag(mac));
        }
    }
    let host_devices = devices.host_devices.iter();
    let host_devices = host_devices.map(|one| ("hostdevice", &one.name, one.tag.as_deref()));
    let gpus = devices.gpus.iter();
    let gpus = gpus.map(|one| ("gpu", &one.name, one.tag.as_deref()));
    for (kind, name, tag) in host_devices.chain(gpus) {
        if let Some(tag) = given(tag) {
            for alias in [format!("ua-{kind}-{name}"), format!("ua-dra-{kind}-{name}")] {
                let tag = Tag {
                    kind: HostDevice,
                    text: tag,
                    mac: None,
                    serial: None,
                };
                of_others.insert(alias, tag);
            }
        }
    }
    (of_interfaces, of_others)
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn tagged(
    element: &Element,
    tags: &Tags<'_>,
    near: impl Fn(PciAddress) -> Near,
) -> Option<TaggedDevice> {
    let alias = element.first("alias")?.attribute("name")?;
    let tag = tags.get(alias)?;
    let mac = element
        .first("mac")
        .and_then(|mac| mac.attribute("address"));
    let source = element.first("source");
    let source = source.and_then(|source| pci(source.first("address")?));
    let source = source.and_then(|address| PciAddress::parse(&address));
    let (bus, address) = address(element.first("address")?)?;
    Some(TaggedDevice {
        kind: tag.kind,
        bus,
        address,
        mac: mac.or(tag.mac).map(str::to_owned),
        serial: tag.serial.map(str::to_owned),
        near: source.map(near).unwrap_or_default(),
        tag: tag.text.to_owned(),
    })
}

fn address(element: &Element) -> Option<(TaggedBus, String)> {
    match element.attribute("type")? {
        "pci" => Some((TaggedBus::Pci, pci(element)?)),
        // Only disks on the bus SCSI have such an address; libvirt gives them target 0.
        "drive" => {
            let number = |name: &str| element.attribute(name);
            let [controller, bus, unit] = ["controller", "bus", "unit"].map(number);
            let address = format!("{}:{}:0:{}", controller?, bus?, unit?);
            Some((TaggedBus::Scsi, address))
        }
        _ => None,
    }
}

fn pci(element: &Element) -> Option<String> {
    let digits = |name: &str| element.attribute(name)?.strip_prefix("0x");
    let [domain, bus, slot, function] = ["domain", "bus", "slot", "function"].map(digits);
    Some(format!("{}:{}:{}.{}", domain?, bus?, slot?, function?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::layout;

    #[test]
    fn tagged_devices_have_their_address() {
        let devices: Devices = serde_json::from_value(json!({
            "interfaces": [{"name": "a", "tag": "red"}, {"name": "b"}, {"name": "fast", "tag": "data", "macAddress": "02:00:00:00:00:02"}],
            "hostDevices": [{"name": "nvme", "deviceName": "x/y", "tag": "disk"}, {"name": "usb", "deviceName": "x/u", "tag": "key"}],
            "gpus": [{"name": "card", "deviceName": "x/z", "tag": "draw"}, {"name": "none", "deviceName": "x/z", "tag": ""}],
            "disks": [
                {"name": "root", "tag": "system", "serial": "R1"}, {"name": "data", "tag": "database"},
                {"name": "sata", "tag": "far"}, {"name": "seed"},
            ],
        }))
        .expect("devices");
        let at = |bus: u8| {
            layout::render_taken(PciAddress {
                domain: 0,
                bus,
                slot: 0,
                function: 1,
            })
        };
        let interface = |name: &str, bus| {
            let mac = Element::new("mac").attr("address", "02:00:00:00:00:01");
            Element::new("interface")
                .child(mac)
                .child(at(bus))
                .alias(name)
        };
        // The first address is that of the node.
        let host_device = |alias: &str, bus| {
            let source = Element::new("source").child(at(0x81));
            Element::new("hostdev")
                .child(source)
                .child(at(bus))
                .alias(alias)
        };
        let interfaces = [interface("a", 1), interface("b", 2)];
        let others = [
            host_device("hostdevice-nvme", 10),
            Element::new("hostdev").alias("usb-host-usb"),
            host_device("dra-gpu-card", 11),
            host_device("gpu-none", 12),
            host_device("sriov-fast", 13),
        ];
        let drive = Element::new("address")
            .attr("type", "drive")
            .attr("controller", 0)
            .attr("bus", 0)
            .attr("unit", 3);
        let disks = [
            Element::new("disk").child(at(7)).alias("root"),
            Element::new("disk").child(drive).alias("data"),
            Element::new("disk").alias("sata"),
            Element::new("disk").child(at(8)).alias("seed"),
        ];
        let rendered = Rendered {
            disks: &disks,
            interfaces: &interfaces,
            host_devices: &others,
        };
        let near = |address: PciAddress| {
            assert_eq!(address.to_string(), "0000:81:00.1");
            Near {
                cell: Some(1),
                cpus: Vec::new(),
            }
        };
        let found = of(&devices, rendered, near);
        let described: Vec<String> = found
            .iter()
            .map(|one| {
                let (kind, bus, address) = (one.kind, one.bus, &one.address);
                let (mac, serial) = (&one.mac, &one.serial);
                let (cell, tag) = (one.near.cell, &one.tag);
                format!("{kind:?} {bus:?} {address} {mac:?} {serial:?} {cell:?} {tag}")
            })
            .collect();
        assert_eq!(
            described,
            [
                "Interface Pci 0000:01:00.1 Some(\"02:00:00:00:00:01\") None None red",
                "HostDevice Pci 0000:0a:00.1 None None Some(1) disk",
                "HostDevice Pci 0000:0b:00.1 None None Some(1) draw",
                "Interface Pci 0000:0d:00.1 Some(\"02:00:00:00:00:02\") None Some(1) data",
                "Disk Pci 0000:07:00.1 None Some(\"R1\") None system",
                "Disk Scsi 0:0:0:3 None None None database",
            ]
        );
        // libvirt chooses the address.
        let rendered = Rendered {
            disks: &[],
            interfaces: &[Element::new("interface").alias("a")],
            host_devices: &[],
        };
        assert_eq!(of(&devices, rendered, near), []);
        assert!(has_tags(&devices));
        assert!(!has_tags(&Devices::default()));
    }
}
