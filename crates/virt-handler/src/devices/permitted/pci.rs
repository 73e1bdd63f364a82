//! PCI devices that `vfio-pci` or another driver of VFIO has taken.
//!
//! A pod gets a whole IOMMU group, since the kernel cannot separate the devices in it. So a group is a
//! device of the kubelet, and it is offered only if everything in it may go to the guest: what the
//! administrator permits for this resource, other functions of the same card, and bridges that only the host uses.
//!
//! A physical function of SR-IOV is on the card of its virtual functions, and rules over all of them: it goes to a
//! guest only if it is permitted itself.

use std::{collections::BTreeMap, io, path::Path};

use model::{DeviceAddress, PciAddress};

use super::{
    super::sysfs,
    DeviceFiles,
    discovery::{Found, Unit},
    selection::{Permitted, Selection, VendorAndProduct},
};

const DRIVER: &str = "vfio-pci";
/// That of virtual functions whose parts of a card NVIDIA's own driver manages.
const NVIDIA: &str = "nvidia";
/// The class of bridges.
const BRIDGE: u32 = 0x06;

struct Device {
    address: PciAddress,
    kind: VendorAndProduct,
    class: u32,
    driver: Option<String>,
    /// Whether a driver of VFIO has it, so that a guest can.
    is_ready: bool,
    numa: Option<u32>,
    is_physical_function: bool,
}

/// What the kernel cannot separate.
#[derive(Default)]
struct Group {
    /// In the order of their addresses.
    devices: Vec<Device>,
    /// The name of a device that could not be read: its kind and its driver are not known.
    unknown: Option<String>,
}

pub(super) fn search(
    files: &DeviceFiles,
    permitted: &[Permitted],
    found: &mut Found,
) -> io::Result<()> {
    if !permitted
        .iter()
        .any(|one| matches!(one.devices, Selection::Pci(_)))
    {
        return Ok(());
    }
    let resource_of = |device: &Device| {
        let selects = |one: &&Permitted| matches!(&one.devices, Selection::Pci(kinds) if kinds.contains(&device.kind));
        permitted.iter().find(selects).map(|one| &*one.resource)
    };
    for (number, group) in groups(files)? {
        let node = format!("vfio/{number}");
        let mut ready = group.devices.iter().filter(|device| device.is_ready);
        let first = ready.find_map(|device| Some((device, resource_of(device)?)));
        let Some((device, resource)) = first else {
            continue;
        };
        if !files.dev.join(&node).exists() {
            continue;
        }
        if let Some(obstacle) = group.obstacle(device, resource, resource_of) {
            found.problems.push(format!(
                "PCI device {} is in IOMMU group {number} with {obstacle}",
                device.address
            ));
            continue;
        }
        let unit = Unit {
            id: group.id(device).to_string(),
            addresses: vec![DeviceAddress::Pci(device.address)],
            nodes: vec!["vfio/vfio".to_owned(), node],
            numa: device.numa,
        };
        found.add(resource, unit);
    }
    Ok(())
}

impl Device {
    fn is_bridge(&self) -> bool {
        self.class >> 16 == BRIDGE
    }

    /// Whether both are functions of one card, and the other one goes with this one.
    fn takes_along(&self, other: &Self) -> bool {
        let card = |one: PciAddress| (one.domain, one.bus, one.slot);
        card(self.address) == card(other.address) && !other.is_physical_function
    }
}

impl Group {
    /// The same whatever is permitted: the kubelet keeps it while a pod has the group.
    fn id(&self, device: &Device) -> PciAddress {
        let mut others = self.devices.iter().filter(|one| !one.is_bridge());
        others.next().unwrap_or(device).address
    }

    /// The first device in the group that forbids to offer it, and why.
    fn obstacle<'a>(
        &self,
        device: &Device,
        resource: &str,
        resource_of: impl Fn(&Device) -> Option<&'a str>,
    ) -> Option<String> {
        if let Some(name) = &self.unknown {
            return Some(format!("{name}, which cannot be read"));
        }
        let mut others = self.devices.iter();
        others.find_map(|other| {
            // A bridge that no driver of VFIO has cannot be opened by the guest.
            let is_harmless = other.is_bridge() && !other.is_ready;
            if is_harmless || other.address == device.address {
                return None;
            }
            let why = match resource_of(other) {
                None if !device.takes_along(other) => "which is not permitted".to_owned(),
                Some(another) if another != resource => {
                    format!("which is permitted as {another}: permit both as one resource")
                }
                // Without a driver, it does not keep the group from the guest.
                _ if other.driver.is_some() && !other.is_ready => {
                    format!("which has another driver: bind it to {DRIVER}")
                }
                _ => return None,
            };
            Some(format!("{}, {why}", other.address))
        })
    }
}

fn groups(files: &DeviceFiles) -> io::Result<BTreeMap<u32, Group>> {
    let directory = files.sys.join("bus/pci/devices");
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    for name in sysfs::names(&directory)? {
        let path = directory.join(&name);
        // None: it is behind no IOMMU, or was just unplugged.
        let Some(number) = sysfs::iommu_group(&path) else {
            continue;
        };
        let group = groups.entry(number).or_default();
        match device(&name, &path) {
            Some(device) => group.devices.push(device),
            None => group.unknown = Some(name),
        }
    }
    Ok(groups)
}

fn device(name: &str, path: &Path) -> Option<Device> {
    let number = |file: &str| u16::try_from(sysfs::hex(&path.join(file))?).ok();
    let driver = sysfs::link(&path.join("driver"));
    let is_physical_function = path.join("sriov_totalvfs").exists();
    let is_ready = match driver.as_deref() {
        Some(NVIDIA) => !is_physical_function && has_profile(path),
        Some(driver) => is_of_vfio(driver) || path.join("vfio-dev").is_dir(),
        None => false,
    };
    Some(Device {
        address: PciAddress::parse(name)?,
        kind: VendorAndProduct {
            vendor: number("vendor")?,
            product: number("device")?,
        },
        class: sysfs::hex(&path.join("class"))?,
        driver,
        is_ready,
        numa: sysfs::numa(path),
        is_physical_function,
    })
}

/// Whether the name is that of `vfio-pci` or of a driver for one kind of card that is made of it, such as
/// `nvgrace_gpu_vfio_pci`. Since Linux 6.1, the directory `vfio-dev` of a device says so whatever the name.
fn is_of_vfio(driver: &str) -> bool {
    let name = driver.replace('-', "_");
    name == "vfio_pci" || name.ends_with("_vfio_pci")
}

/// Whether the virtual function was given a part of the card.
fn has_profile(path: &Path) -> bool {
    let profile = sysfs::value(&path.join("nvidia/current_vgpu_type"));
    profile.is_some_and(|profile| !profile.is_empty() && profile != "0")
}
