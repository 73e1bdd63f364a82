//! PCI devices that the driver `vfio-pci` has taken.
//!
//! A pod gets a whole IOMMU group, since the kernel cannot separate the devices in it. So a group is a
//! device of the kubelet, and it is offered only if everything in it may go to the guest: what the
//! administrator permits, other functions of the same card, and bridges, which no guest gets.

use std::{collections::BTreeSet, io};

use model::{DeviceAddress, PciAddress};

use super::{
    DeviceFiles,
    discovery::{Found, Unit},
    selection::{Permitted, Selection, VendorAndProduct},
    sysfs,
};

const DRIVER: &str = "vfio-pci";
/// The class of bridges.
const BRIDGE: u32 = 0x06;

struct Device {
    address: PciAddress,
    kind: VendorAndProduct,
    class: u32,
    driver: Option<String>,
    group: Option<u32>,
    numa: Option<u32>,
}

pub(super) fn search(
    files: &DeviceFiles,
    permitted: &[Permitted],
    found: &mut Found,
) -> io::Result<()> {
    let resource_of = |kind: VendorAndProduct| {
        let mut all = permitted.iter();
        all.find(|one| matches!(&one.devices, Selection::Pci(kinds) if kinds.contains(&kind)))
    };
    if !permitted
        .iter()
        .any(|one| matches!(one.devices, Selection::Pci(_)))
    {
        return Ok(());
    }
    let devices = devices(files)?;
    let mut offered = BTreeSet::new();
    for device in &devices {
        let (Some(permitted), Some(group)) = (resource_of(device.kind), device.group) else {
            continue;
        };
        let node = format!("vfio/{group}");
        let is_ready = device.driver.as_deref() == Some(DRIVER) && files.dev.join(&node).exists();
        if !is_ready || offered.contains(&group) {
            continue;
        }
        let stranger = devices.iter().find(|other| {
            other.group == Some(group)
                && other.class >> 16 != BRIDGE
                && !is_same_card(other.address, device.address)
                && resource_of(other.kind).is_none()
        });
        if let Some(stranger) = stranger {
            found.problems.push(format!(
                "PCI device {} is in IOMMU group {group} with {}, which is not permitted",
                device.address, stranger.address
            ));
            continue;
        }
        offered.insert(group);
        let unit = Unit {
            id: device.address.to_string(),
            addresses: vec![DeviceAddress::Pci(device.address)],
            nodes: vec!["vfio/vfio".to_owned(), node],
            numa: device.numa,
        };
        found.add(&permitted.resource, unit);
    }
    Ok(())
}

/// In the order of their addresses.
fn devices(files: &DeviceFiles) -> io::Result<Vec<Device>> {
    let directory = files.sys.join("bus/pci/devices");
    let names = sysfs::names(&directory)?;
    let devices = names.iter().filter_map(|name| {
        let path = directory.join(name);
        let number = |file: &str| u16::try_from(sysfs::hex(&path.join(file))?).ok();
        Some(Device {
            address: PciAddress::parse(name)?,
            kind: VendorAndProduct {
                vendor: number("vendor")?,
                product: number("device")?,
            },
            class: sysfs::hex(&path.join("class"))?,
            driver: sysfs::link(&path.join("driver")),
            group: sysfs::iommu_group(&path),
            numa: sysfs::numa(&path),
        })
    });
    Ok(devices.collect())
}

/// Whether both are functions of one card.
fn is_same_card(one: PciAddress, other: PciAddress) -> bool {
    (one.domain, one.bus, one.slot) == (other.domain, other.bus, other.slot)
}
