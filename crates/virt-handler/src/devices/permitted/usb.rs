//! USB devices. A unit has one device for each selector of its resource.
//!
//! **Invariant**: a device stays in its unit of several devices while virt-handler runs, also while another device of
//! the unit is missing: a guest may have it, and nothing says when that guest ends.

use std::{io, sync::Arc};

use model::{DeviceAddress, UsbAddress};
use parking_lot::Mutex;

use super::{
    super::sysfs,
    DeviceFiles,
    discovery::{Found, Unit},
    selection::{Permitted, Selection, VendorAndProduct},
};

#[derive(Debug, Clone)]
struct Device {
    /// The ports that lead to it, such as `1-4.2`: its number changes when it is plugged in again.
    ports: String,
    kind: VendorAndProduct,
    address: UsbAddress,
}

/// The units of several devices that all searches of this process have found.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownUnits(Arc<Mutex<Vec<KnownUnit>>>);

#[derive(Debug)]
struct KnownUnit {
    resource: String,
    kinds: Vec<VendorAndProduct>,
    /// Of the device of each kind.
    ports: Vec<String>,
}

pub(super) fn search(
    files: &DeviceFiles,
    permitted: &[Permitted],
    known: &KnownUnits,
    found: &mut Found,
) -> io::Result<()> {
    let mut entries = Vec::new();
    for one in permitted {
        if let Selection::Usb(units) = &one.devices {
            entries.extend(units.iter().map(|kinds| (&*one.resource, &**kinds)));
        }
    }
    // Until the end: a search at the same time must not make other units.
    let mut known = known.0.lock();
    known.retain(|unit| entries.contains(&(&*unit.resource, &*unit.kinds)));
    if entries.is_empty() {
        return Ok(());
    }
    let mut free = devices(files)?;
    for unit in &*known {
        match unit.take(&mut free) {
            Ok(devices) => found.add(&unit.resource, self::unit(&devices)),
            Err(problem) => found.problems.extend(problem),
        }
    }
    for (resource, kinds) in entries {
        while let Some(devices) = take(&mut free, kinds) {
            let unit = unit(&devices);
            found.add(resource, unit);
            if devices.len() > 1 {
                known.push(KnownUnit {
                    resource: resource.to_owned(),
                    kinds: kinds.to_owned(),
                    ports: devices.into_iter().map(|device| device.ports).collect(),
                });
            }
        }
    }
    Ok(())
}

impl KnownUnit {
    /// Removes its devices. If one is missing, the error names those that are there.
    fn take(&self, free: &mut Vec<Device>) -> Result<Vec<Device>, Option<String>> {
        let mut taken = Vec::new();
        for (ports, kind) in self.ports.iter().zip(&self.kinds) {
            let is_same = |device: &Device| device.ports == *ports && device.kind == *kind;
            if let Some(position) = free.iter().position(is_same) {
                taken.push(free.remove(position));
            }
        }
        if taken.len() == self.ports.len() {
            return Ok(taken);
        }
        let problem = format!(
            "USB unit {} of {} lacks a device: plug it into the same port, or restart virt-handler when no guest \
             has the unit",
            self.ports.join("+"),
            self.resource
        );
        Err((!taken.is_empty()).then_some(problem))
    }
}

fn unit(devices: &[Device]) -> Unit {
    let ids: Vec<&str> = devices.iter().map(|one| &*one.ports).collect();
    let addresses = devices.iter().map(|one| DeviceAddress::Usb(one.address));
    Unit {
        id: ids.join("+"),
        addresses: addresses.collect(),
        nodes: devices.iter().map(|one| node(one.address)).collect(),
        numa: None,
    }
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
