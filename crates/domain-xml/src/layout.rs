//! Where devices are on the PCI bus. Guests see it: a disk or a serial port at another address is a
//! new device to Windows, and the names of network interfaces follow from the address.
//!
//! The layout is that of `KubeVirt`, so that a guest finds its devices where they were. Each device has a
//! root port of its own, in the order of [`Devices`]. `KubeVirt` keeps ports for interfaces that are
//! plugged in later behind those of the interfaces, and further free ports at the end.

use model::PciAddress;

use crate::RenderError;
use crate::element::Element;

/// A guest with at most this much memory gets fewer ports.
const SMALL_GUEST: u64 = 2 << 30;
/// Most ports below the root.
const MAX_PORTS: usize = 31;
/// Interfaces that a guest can have without a change of its other devices.
const INTERFACES: usize = 4;
/// Slots of the root bus for devices: the host bridge and the display are before them.
const ROOT_SLOTS: std::ops::RangeInclusive<usize> = 0x02..=0x1e;
/// Slot of the chipset's sound device.
const SOUND_SLOT: usize = 0x1b;

/// The devices that need an address, as counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    pub(crate) filesystems: usize,
    pub(crate) interfaces: Vec<Plug>,
    pub(crate) usb_controllers: usize,
    pub(crate) scsi_controllers: usize,
    pub(crate) serial_controllers: usize,
    /// Disks on the bus virtio, without those that have an address already.
    pub(crate) disks: usize,
    /// Devices of the node, without USB.
    pub(crate) passed_through: usize,
    pub(crate) balloons: usize,
    pub(crate) entropy_sources: usize,
    /// Inputs on the bus virtio.
    pub(crate) inputs: usize,
    pub(crate) vsocks: usize,
    /// Devices other than interfaces that take conventional PCI only.
    pub(crate) conventional: usize,
    /// Addresses that the user gave to interfaces and disks.
    pub(crate) taken: Vec<PciAddress>,
}

/// What an interface is plugged into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plug {
    /// A root port.
    Express,
    /// A conventional slot, behind a bridge.
    Conventional,
    /// The address that the user gave.
    Taken,
}

/// How the devices are to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In root ports, with free ports for devices that are plugged in later.
    Ports,
    /// In root ports, without further free ports.
    PortsWithoutHotplug,
    /// In slots of the root bus.
    RootComplex,
    /// As libvirt decides: the devices are transitional, so they take conventional PCI only.
    Automatic,
    /// As libvirt decides: the machine has no PCI, or conventional PCI only.
    None,
}

/// An address with function 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    bus: usize,
    slot: usize,
}

/// The address of each device; libvirt chooses one where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) filesystems: Vec<Option<Address>>,
    pub(crate) interfaces: Vec<Option<Address>>,
    pub(crate) usb: Option<Address>,
    pub(crate) scsi: Option<Address>,
    pub(crate) serial: Option<Address>,
    pub(crate) disks: Vec<Option<Address>>,
    pub(crate) host_devices: Vec<Option<Address>>,
    pub(crate) balloon: Option<Address>,
    pub(crate) entropy: Option<Address>,
    pub(crate) inputs: Vec<Option<Address>>,
    pub(crate) vsock: Option<Address>,
    /// Of the bridge to conventional PCI, which otherwise would take a port of an interface.
    pub(crate) bridge: Option<Address>,
    /// PCI Express root ports, used and free.
    pub(crate) ports: usize,
}

/// `slot_count` is the total of ports for interfaces, if it is fixed.
pub(crate) fn lay_out(
    devices: &Devices,
    placement: Placement,
    memory: u64,
    slot_count: Option<usize>,
) -> Layout {
    let count = devices.interfaces.len();
    let gap = match slot_count {
        _ if count == 0 => 0,
        Some(total) => total.saturating_sub(count),
        None => INTERFACES.saturating_sub(count),
    };
    match placement {
        Placement::None => unplaced(devices),
        Placement::Automatic => Layout {
            ports: used(devices) + free(used(devices), memory),
            ..unplaced(devices)
        }
        .limited(),
        Placement::RootComplex => {
            let is_free = |slot: &usize| *slot != SOUND_SLOT && !devices.has_taken(0, *slot);
            let mut slots = ROOT_SLOTS.filter(is_free);
            place(devices, 0, || {
                slots.next().map(|slot| Address { bus: 0, slot })
            })
        }
        Placement::Ports | Placement::PortsWithoutHotplug => {
            let mut buses = (1..=MAX_PORTS).filter(|bus| !devices.has_taken(*bus, 0));
            let next = || buses.next().map(|bus| Address { bus, slot: 0 });
            let layout = place(devices, gap, next);
            let used = used(devices);
            let last_taken = devices.taken_ports().max().unwrap_or(0);
            // KubeVirt counts controllers and balloons of the model "none", too.
            let absent =
                usize::from(devices.usb_controllers == 0) + usize::from(devices.balloons == 0);
            let further = match placement {
                Placement::Ports => free(used + absent, memory).saturating_sub(gap),
                _ => 0,
            };
            Layout {
                ports: (used + gap + 1 + further).max(last_taken),
                ..layout
            }
            .limited()
        }
    }
}

/// Free ports beside the used ones.
fn free(used: usize, memory: u64) -> usize {
    let (total, least): (usize, usize) = if memory <= SMALL_GUEST {
        (8, 3)
    } else {
        (16, 6)
    };
    total.saturating_sub(used).max(least)
}

fn express(devices: &Devices) -> usize {
    let interfaces = devices.interfaces.iter();
    interfaces.filter(|plug| **plug == Plug::Express).count()
}

fn needs_bridge(devices: &Devices) -> bool {
    let mut interfaces = devices.interfaces.iter();
    devices.conventional > 0 || interfaces.any(|plug| *plug == Plug::Conventional)
}

/// Root ports with a device.
fn used(devices: &Devices) -> usize {
    express(devices)
        + devices.filesystems
        + devices.usb_controllers
        + devices.scsi_controllers
        + devices.serial_controllers
        + devices.disks
        + devices.passed_through
        + devices.balloons
        + devices.entropy_sources
        + devices.inputs
        + devices.vsocks
        + devices.taken_ports().count()
        + usize::from(needs_bridge(devices))
}

impl Devices {
    fn has_taken(&self, bus: usize, slot: usize) -> bool {
        let mut taken = self.taken.iter();
        taken.any(|address| {
            let place = (usize::from(address.bus), usize::from(address.slot));
            address.domain == 0 && place == (bus, slot)
        })
    }

    /// Numbers of the root ports that the user gave.
    fn taken_ports(&self) -> impl Iterator<Item = usize> {
        (1..=MAX_PORTS).filter(|bus| self.has_taken(*bus, 0))
    }
}

fn unplaced(devices: &Devices) -> Layout {
    Layout {
        filesystems: vec![None; devices.filesystems],
        interfaces: vec![None; devices.interfaces.len()],
        disks: vec![None; devices.disks],
        host_devices: vec![None; devices.passed_through],
        inputs: vec![None; devices.inputs],
        ..Layout::default()
    }
}

/// Takes an address for each device, in order, and leaves a gap behind the interfaces.
fn place(devices: &Devices, gap: usize, mut next: impl FnMut() -> Option<Address>) -> Layout {
    let filesystems = (0..devices.filesystems).map(|_| next()).collect();
    let interfaces = devices.interfaces.iter().map(|plug| match plug {
        Plug::Express => next(),
        Plug::Conventional | Plug::Taken => None,
    });
    let interfaces = interfaces.collect();
    for _ in 0..gap {
        next();
    }
    let mut one = |count: usize| if count > 0 { next() } else { None };
    let (usb, scsi, serial) = (
        one(devices.usb_controllers),
        one(devices.scsi_controllers),
        one(devices.serial_controllers),
    );
    let disks = (0..devices.disks).map(|_| one(1)).collect();
    let host_devices = (0..devices.passed_through).map(|_| one(1)).collect();
    let (balloon, entropy) = (one(devices.balloons), one(devices.entropy_sources));
    let inputs = (0..devices.inputs).map(|_| one(1)).collect();
    let vsock = one(devices.vsocks);
    Layout {
        filesystems,
        interfaces,
        usb,
        scsi,
        serial,
        disks,
        host_devices,
        balloon,
        entropy,
        inputs,
        vsock,
        bridge: one(usize::from(needs_bridge(devices))),
        ports: 0,
    }
}

impl Layout {
    fn limited(self) -> Self {
        Self {
            ports: self.ports.min(MAX_PORTS),
            ..self
        }
    }
}

impl Address {
    pub(crate) fn render(self) -> Element {
        Element::new("address")
            .attr("type", "pci")
            .attr("domain", "0x0000")
            .attr("bus", format!("0x{:02x}", self.bus))
            .attr("slot", format!("0x{:02x}", self.slot))
            .attr("function", "0x0")
    }
}

/// Reads an address that the user gave.
pub(crate) fn taken(
    text: Option<&str>,
    field: impl Fn() -> String,
) -> Result<Option<PciAddress>, RenderError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let bad = || {
        let problem = format!("{text:?} is not a PCI address; use the form 0000:81:01.0");
        RenderError::invalid(field(), &problem)
    };
    PciAddress::parse(text).ok_or_else(bad).map(Some)
}

/// An address that the user gave.
pub(crate) fn render_taken(address: PciAddress) -> Element {
    let PciAddress {
        domain,
        bus,
        slot,
        function,
    } = address;
    Element::new("address")
        .attr("type", "pci")
        .attr("domain", format!("{domain:#06x}"))
        .attr("bus", format!("{bus:#04x}"))
        .attr("slot", format!("{slot:#04x}"))
        .attr("function", format!("{function:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: u64 = 2 << 30;
    const LARGE: u64 = SMALL + 1;

    /// One virtio disk, SCSI and serial controllers and a balloon.
    fn devices(interfaces: usize) -> Devices {
        Devices {
            interfaces: vec![Plug::Express; interfaces],
            scsi_controllers: 1,
            serial_controllers: 1,
            disks: 1,
            balloons: 1,
            ..Devices::default()
        }
    }

    /// Buses of interfaces, controllers, disks and the other devices, and the number of ports.
    fn check(devices: &Devices, memory: u64, slots: Option<usize>, expected: &str) {
        let layout = lay_out(devices, Placement::Ports, memory, slots);
        assert_eq!(
            describe(&layout),
            expected,
            "{devices:?} {memory} {slots:?}"
        );
    }

    fn describe(layout: &Layout) -> String {
        let show = |address: &Option<Address>| match address {
            Some(Address { bus, slot: 0 }) => bus.to_string(),
            Some(Address { slot, .. }) => format!("slot {slot:#x}"),
            None => "-".to_owned(),
        };
        let list = |all: &[Option<Address>]| all.iter().map(show).collect::<Vec<_>>().join(" ");
        format!(
            "nic {}, usb {}, scsi {}, serial {}, disk {}, balloon {}, rng {}, input {}, of {}",
            list(&layout.interfaces),
            show(&layout.usb),
            show(&layout.scsi),
            show(&layout.serial),
            list(&layout.disks),
            show(&layout.balloon),
            show(&layout.entropy),
            list(&layout.inputs),
            layout.ports,
        )
    }

    #[test]
    fn devices_are_where_kubevirt_puts_them() {
        check(
            &devices(1),
            SMALL,
            None,
            "nic 1, usb -, scsi 5, serial 6, disk 7, balloon 8, rng -, input , of 9",
        );
        // Without interfaces no port is kept for any.
        check(
            &devices(0),
            SMALL,
            None,
            "nic , usb -, scsi 1, serial 2, disk 3, balloon 4, rng -, input , of 8",
        );
        check(
            &devices(4),
            SMALL,
            None,
            "nic 1 2 3 4, usb -, scsi 5, serial 6, disk 7, balloon 8, rng -, input , of 12",
        );
        check(
            &devices(1),
            LARGE,
            None,
            "nic 1, usb -, scsi 5, serial 6, disk 7, balloon 8, rng -, input , of 16",
        );
        let all = Devices {
            usb_controllers: 1,
            disks: 2,
            entropy_sources: 1,
            inputs: 1,
            ..devices(2)
        };
        check(
            &all,
            SMALL,
            None,
            "nic 1 2, usb 5, scsi 6, serial 7, disk 8 9, balloon 10, rng 11, input 12, of 14",
        );
        let without_balloon = Devices {
            balloons: 0,
            ..devices(1)
        };
        check(
            &without_balloon,
            SMALL,
            None,
            "nic 1, usb -, scsi 5, serial 6, disk 7, balloon -, rng -, input , of 8",
        );
    }

    #[test]
    fn annotated_number_of_slots_is_the_total_of_interfaces() {
        let at_six = "nic 1, usb -, scsi 7, serial 8, disk 9, balloon 10, rng -, input , of 11";
        check(&devices(1), SMALL, Some(6), at_six);
        let at_one = "nic 1, usb -, scsi 2, serial 3, disk 4, balloon 5, rng -, input , of 9";
        check(&devices(1), SMALL, Some(1), at_one);
        check(&devices(1), SMALL, Some(0), at_one);
    }

    #[test]
    fn guest_without_hotplug_keeps_the_ports_of_interfaces_only() {
        let devices = Devices {
            scsi_controllers: 0,
            ..devices(1)
        };
        let layout = lay_out(&devices, Placement::PortsWithoutHotplug, SMALL, None);
        assert_eq!(layout.ports, 8);
    }

    #[test]
    fn root_complex_has_no_ports_and_leaves_out_slots_of_the_chipset() {
        let many = Devices {
            disks: 30,
            ..devices(1)
        };
        let layout = lay_out(&many, Placement::RootComplex, SMALL, None);
        assert_eq!(layout.ports, 0);
        assert_eq!(layout.interfaces, [Some(Address { bus: 0, slot: 2 })]);
        let slots: Vec<usize> = layout.disks.iter().flatten().map(|one| one.slot).collect();
        assert!(
            !slots.contains(&0x1b) && !slots.contains(&0x1f),
            "{slots:?}"
        );
        assert_eq!(slots.first(), Some(&5));
        // libvirt places the rest, or refuses.
        assert_eq!(layout.balloon, None);
    }

    #[test]
    fn given_addresses_are_left_out_and_have_a_port() {
        let with = |taken: &str| Devices {
            interfaces: vec![Plug::Taken, Plug::Express],
            taken: PciAddress::parse(taken).into_iter().collect(),
            ..devices(0)
        };
        let low = "nic - 2, usb -, scsi 5, serial 6, disk 7, balloon 8, rng -, input , of 10";
        check(&with("0000:01:00.0"), SMALL, None, low);
        let high = "nic - 1, usb -, scsi 4, serial 5, disk 6, balloon 7, rng -, input , of 20";
        check(&with("0000:14:00.0"), SMALL, None, high);
        let layout = lay_out(&with("0000:00:02.0"), Placement::RootComplex, SMALL, None);
        assert_eq!(layout.interfaces, [None, Some(Address { bus: 0, slot: 3 })]);
    }

    #[test]
    fn conventional_devices_share_a_bridge_behind_all_others() {
        let mixed = Devices {
            interfaces: vec![Plug::Conventional, Plug::Express],
            conventional: 1,
            ..devices(0)
        };
        let layout = lay_out(&mixed, Placement::Ports, SMALL, None);
        assert_eq!(layout.interfaces, [None, Some(Address { bus: 1, slot: 0 })]);
        assert_eq!(layout.scsi, Some(Address { bus: 4, slot: 0 }));
        assert_eq!(layout.bridge, Some(Address { bus: 8, slot: 0 }));
    }

    #[test]
    fn ports_are_limited_and_transitional_devices_are_placed_by_libvirt() {
        let many = Devices {
            disks: 40,
            ..devices(1)
        };
        let layout = lay_out(&many, Placement::Ports, LARGE, None);
        assert_eq!(layout.ports, MAX_PORTS);
        assert_eq!(layout.disks.last(), Some(&None));
        let layout = lay_out(&devices(1), Placement::Automatic, SMALL, None);
        assert_eq!((layout.serial, layout.ports), (None, 8));
    }
}
