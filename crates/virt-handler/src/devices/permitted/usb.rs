//! USB devices. A unit has one device for each selector of its resource.

use std::io;

use model::{DeviceAddress, UsbAddress};

use super::{
    DeviceFiles,
    discovery::{Found, Unit},
    selection::{Permitted, Selection, VendorAndProduct},
    sysfs,
};

#[derive(Debug, Clone)]
struct Device {
    /// The ports that lead to it, such as `1-4.2`: its number changes when it is plugged in again.
    ports: String,
    kind: VendorAndProduct,
    address: UsbAddress,
}

pub(super) fn search(
    files: &DeviceFiles,
    permitted: &[Permitted],
    found: &mut Found,
) -> io::Result<()> {
    let units = permitted.iter().filter_map(|one| match &one.devices {
        Selection::Usb(units) => Some((one, units)),
        _ => None,
    });
    let mut free = None;
    for (permitted, units) in units {
        let free = match &mut free {
            Some(free) => free,
            none => none.insert(devices(files)?),
        };
        for unit in units {
            while let Some(devices) = take(free, unit) {
                let ids: Vec<&str> = devices.iter().map(|one| &*one.ports).collect();
                let addresses = devices.iter().map(|one| DeviceAddress::Usb(one.address));
                let unit = Unit {
                    id: ids.join("+"),
                    addresses: addresses.collect(),
                    nodes: devices.iter().map(|one| node(one.address)).collect(),
                    numa: None,
                };
                found.add(&permitted.resource, unit);
            }
        }
    }
    Ok(())
}

/// Removes a device of each kind, if all of them are there.
fn take(free: &mut Vec<Device>, unit: &[VendorAndProduct]) -> Option<Vec<Device>> {
    let mut rest = free.clone();
    let mut taken = Vec::new();
    for kind in unit {
        let position = rest.iter().position(|device| device.kind == *kind)?;
        taken.push(rest.remove(position));
    }
    *free = rest;
    (!taken.is_empty()).then_some(taken)
}

fn devices(files: &DeviceFiles) -> io::Result<Vec<Device>> {
    let directory = files.sys.join("bus/usb/devices");
    let names = sysfs::names(&directory)?;
    let devices = names.into_iter().filter_map(|ports| {
        let path = directory.join(&ports);
        let value = |file: &str| sysfs::value(&path.join(file));
        let address = format!("{}:{}", value("busnum")?, value("devnum")?);
        let device = Device {
            kind: VendorAndProduct::parse(&value("idVendor")?, &value("idProduct")?)?,
            address: UsbAddress::parse(&address)?,
            ports,
        };
        let is_there = files.dev.join(node(device.address)).exists();
        is_there.then_some(device)
    });
    Ok(devices.collect())
}

fn node(address: UsbAddress) -> String {
    format!("bus/usb/{:03}/{:03}", address.bus, address.device)
}
