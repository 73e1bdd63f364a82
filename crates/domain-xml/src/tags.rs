//! Where the guest finds the devices that the user has tagged, for the guest's metadata.

use std::collections::BTreeMap;

use kubevirt_api::devices::Devices;

use crate::element::Element;

/// A device with a tag, at an address of the guest's PCI bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedDevice {
    pub kind: TaggedKind,
    /// Such as `0000:01:00.0`.
    pub address: String,
    /// Hardware address of an interface. That of a virtual function is known if the user chose it: the node's card
    /// has it.
    pub mac: Option<String>,
    pub tag: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaggedKind {
    Interface,
    HostDevice,
}

/// What the user says about a device.
struct Tag<'a> {
    kind: TaggedKind,
    text: &'a str,
    /// The hardware address that the user chose for a virtual function.
    mac: Option<&'a str>,
}

/// Tags by the alias of the device.
type Tags<'a> = BTreeMap<String, Tag<'a>>;

/// Whether any device has a tag.
pub(crate) fn has_tags(devices: &Devices) -> bool {
    let (interfaces, others) = by_alias(devices);
    !interfaces.is_empty() || !others.is_empty()
}

/// The tagged ones of the rendered interfaces and of the rendered devices of the node. A device whose address libvirt
/// chooses, or that is not on the PCI bus, is left out.
pub(crate) fn of(
    devices: &Devices,
    interfaces: &[Element],
    host_devices: &[Element],
) -> Vec<TaggedDevice> {
    let (of_interfaces, of_others) = by_alias(devices);
    let found = |elements: &[Element], tags: &Tags<'_>| -> Vec<TaggedDevice> {
        let tagged = elements.iter().filter_map(|element| tagged(element, tags));
        tagged.collect()
    };
    let mut all = found(interfaces, &of_interfaces);
    all.extend(found(host_devices, &of_others));
    all
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
                };
                of_others.insert(alias, tag);
            }
        }
    }
    (of_interfaces, of_others)
}

fn given(tag: Option<&str>) -> Option<&str> {
    tag.filter(|tag| !tag.is_empty())
}

fn tagged(element: &Element, tags: &Tags<'_>) -> Option<TaggedDevice> {
    let alias = element.first("alias")?.attribute("name")?;
    let tag = tags.get(alias)?;
    let mac = element
        .first("mac")
        .and_then(|mac| mac.attribute("address"));
    Some(TaggedDevice {
        kind: tag.kind,
        address: address(element.first("address")?)?,
        mac: mac.or(tag.mac).map(str::to_owned),
        tag: tag.text.to_owned(),
    })
}

fn address(element: &Element) -> Option<String> {
    if element.attribute("type") != Some("pci") {
        return None;
    }
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
        }))
        .expect("devices");
        let at = |bus: u8| {
            layout::render_taken(model::PciAddress {
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
        let found = of(&devices, &interfaces, &others);
        let described: Vec<String> = found
            .iter()
            .map(|one| format!("{:?} {} {:?} {}", one.kind, one.address, one.mac, one.tag))
            .collect();
        assert_eq!(
            described,
            [
                "Interface 0000:01:00.1 Some(\"02:00:00:00:00:01\") red",
                "HostDevice 0000:0a:00.1 None disk",
                "HostDevice 0000:0b:00.1 None draw",
                "Interface 0000:0d:00.1 Some(\"02:00:00:00:00:02\") data",
            ]
        );
        // libvirt chooses the address.
        let interfaces = [Element::new("interface").alias("a")];
        assert_eq!(of(&devices, &interfaces, &[]), []);
        assert!(has_tags(&devices));
        assert!(!has_tags(&Devices::default()));
    }
}
