//! Network interfaces.

use model::{Architecture, Binding, LinkState, PciAddress, Unsupported, paths};

use crate::element::Element;
use crate::layout::{self, Address, Plug};
use crate::{Acceleration, Input, InterfaceFacts, RenderError, virtio};

/// How often QEMU looks for a process that was restarted.
const RECONNECT_SECONDS: u32 = 1;

#[derive(Debug)]
pub(crate) struct Interface<'a> {
    parsed: model::Interface<'a>,
    facts: &'a InterfaceFacts,
    end: End,
    model: &'a str,
    driver: Option<Driver>,
    /// The address that the user gave.
    address: Option<PciAddress>,
    rom: Rom,
}

/// The interface's boot ROM.
#[derive(Debug, PartialEq, Eq)]
enum Rom {
    /// Only a guest that may boot from the network needs it.
    ForBoot,
    Never,
    /// The machine has no such ROMs.
    Unknown,
}

/// What the interface is connected to in the pod.
#[derive(Debug)]
enum End {
    Tap(String),
    /// The socket of a process that has the guest's memory, too.
    Socket(String),
}

#[derive(Debug)]
struct Driver {
    name: Option<&'static str>,
    queues: Option<u32>,
    iommu: Option<&'static str>,
}

pub(crate) fn of<'a>(input: &Input<'a>) -> Result<Vec<Interface<'a>>, RenderError> {
    let interfaces = input.guest.plugged_interfaces();
    interfaces
        .filter(|interface| interface.binding != Binding::Sriov)
        .filter(|interface| !is_of_sidecar(input, interface))
        .map(|interface| resolve(input, *interface))
        .collect()
}

/// Whether the sidecar of a registered binding adds the interface to the domain. For the other bindings there is a tap.
fn is_of_sidecar(input: &Input<'_>, interface: &model::Interface<'_>) -> bool {
    let mut facts = input.facts.interfaces.iter();
    matches!(interface.binding, Binding::Plugin(_))
        && facts.all(|facts| facts.name != interface.name())
}

fn resolve<'a>(
    input: &Input<'a>,
    interface: model::Interface<'a>,
) -> Result<Interface<'a>, RenderError> {
    match interface.binding {
        Binding::Passt if interface.emulated_model().is_some() => {
            let problem = "passt connects virtio interfaces only; leave it out";
            return Err(RenderError::invalid(interface.field("model"), problem));
        }
        Binding::Masquerade | Binding::Bridge | Binding::Passt | Binding::Plugin(_) => {}
        Binding::Withdrawn(_) => return Err(Unsupported::binding(&interface).into()),
        Binding::Sriov | Binding::Missing => {
            return Err(RenderError::missing(interface.field("masquerade")));
        }
    }
    let mut facts = input.facts.interfaces.iter();
    let facts = facts.find(|facts| facts.name == interface.name());
    let not_plumbed = || RenderError::NotPlumbed {
        interface: interface.name().to_owned(),
    };
    let facts = facts.ok_or_else(not_plumbed)?;
    let end = if interface.binding == Binding::Passt {
        End::Socket(paths::passt_socket(interface.name()))
    } else {
        End::Tap(facts.tap.clone().ok_or_else(not_plumbed)?)
    };
    let queues = input.guest.queues(&interface);
    let is_virtio = interface.emulated_model().is_none();
    let iommu = is_virtio.then(|| virtio::iommu(input.guest)).flatten();
    let address = interface.spec.pci_address.as_deref();
    Ok(Interface {
        facts,
        end,
        model: interface
            .emulated_model()
            .unwrap_or_else(|| virtio::model(input.guest)),
        address: layout::taken(address, || interface.field("pciAddress"))?,
        rom: match input.guest.architecture {
            Architecture::S390x => Rom::Unknown,
            _ if input.guest.is_confidential() => Rom::Never,
            _ => Rom::ForBoot,
        },
        driver: (queues.is_some() || iommu.is_some()).then_some(Driver {
            // Only KVM has the vhost device.
            name: match (input.facts.acceleration, interface.binding) {
                (_, Binding::Passt) => None,
                (Acceleration::Kvm, _) => Some("vhost"),
                (Acceleration::Emulation, _) => Some("qemu"),
            },
            queues,
            iommu,
        }),
        parsed: interface,
    })
}

/// Renders an interface for a running guest. libvirt gives it a free PCI Express port, unless the user gave an address:
/// the first ones follow those of the other interfaces, where it is after the next start, too.
pub fn hot_interface(input: &Input<'_>, name: &str) -> Result<String, RenderError> {
    let found = of(input)?.into_iter().find(|one| one.parsed.name() == name);
    let interface = found.ok_or_else(|| RenderError::missing(format!("interface {name}")))?;
    let xml = interface.render(None).to_xml();
    match xml.chars().find(|c| c.is_control() && *c != '\n') {
        None => Ok(xml),
        Some(found) => Err(RenderError::invalid(
            interface.parsed.field("name"),
            &format!("control character {found:?} cannot be passed to the hypervisor"),
        )),
    }
}

pub(crate) fn render(interfaces: &[Interface<'_>], addresses: &[Option<Address>]) -> Vec<Element> {
    let all = interfaces.iter().zip(addresses);
    all.map(|(interface, address)| interface.render(*address))
        .collect()
}

impl Interface<'_> {
    /// The PCI address that the user gave.
    pub(crate) fn taken_address(&self) -> Option<PciAddress> {
        self.address
    }

    pub(crate) fn plug(&self) -> Plug {
        match self.parsed.emulated_model() {
            _ if self.address.is_some() => Plug::Taken,
            None | Some("e1000e" | "igb") => Plug::Express,
            Some(_) => Plug::Conventional,
        }
    }

    /// libvirt sets the MTU of a tap; passt announces it to the guest itself.
    fn mtu(&self) -> Option<Element> {
        match self.end {
            End::Tap(_) => Some(Element::new("mtu").attr("size", self.facts.mtu)),
            End::Socket(_) => None,
        }
    }

    fn render(&self, address: Option<Address>) -> Element {
        let (kind, end) = self.end.render();
        let spec = self.parsed.spec;
        let order = spec
            .boot_order
            .map(|order| Element::new("boot").attr("order", order));
        let has_no_rom = match self.rom {
            Rom::ForBoot => order.is_none(),
            Rom::Never => true,
            Rom::Unknown => false,
        };
        let rom = has_no_rom.then(|| Element::new("rom").attr("enabled", "no"));
        let is_down = self.parsed.link == LinkState::Down;
        let acpi = spec.acpi_index.filter(|index| *index > 0);
        Element::new("interface")
            .attr("type", kind)
            .child(Element::new("mac").attr("address", &self.facts.mac))
            .child(end)
            .child(Element::new("model").attr("type", self.model))
            .children(self.driver.as_ref().map(Driver::render))
            .children(order)
            .children(self.mtu())
            .children(is_down.then(|| Element::new("link").attr("state", "down")))
            .children(rom)
            .children(acpi.map(|index| Element::new("acpi").attr("index", index)))
            .children(address.map(Address::render))
            .children(self.address.map(layout::render_taken))
            .alias(self.parsed.name())
    }
}

impl End {
    fn render(&self) -> (&'static str, Element) {
        match self {
            Self::Tap(name) => {
                let target = Element::new("target").attr("dev", name);
                ("ethernet", target.attr("managed", "no"))
            }
            Self::Socket(path) => {
                let reconnect = Element::new("reconnect")
                    .attr("enabled", "yes")
                    .attr("timeout", RECONNECT_SECONDS);
                let source = Element::new("source")
                    .attr("type", "unix")
                    .attr("path", path)
                    .attr("mode", "client");
                ("vhostuser", source.child(reconnect))
            }
        }
    }
}

impl Driver {
    fn render(&self) -> Element {
        Element::new("driver")
            .attr_if("name", self.name)
            .attr_if("queues", self.queues)
            .attr_if("iommu", self.iommu)
    }
}
