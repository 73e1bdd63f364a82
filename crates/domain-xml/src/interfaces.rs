//! Network interfaces.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::network::{self, InterfaceState};

use crate::element::Element;
use crate::{Acceleration, Input, InterfaceFacts, RenderError};

/// More queues than this the tap device does not take.
const MOST_QUEUES: u32 = 256;

#[derive(Debug)]
pub(crate) struct Interface<'a> {
    spec: &'a network::Interface,
    facts: &'a InterfaceFacts,
    model: &'a str,
    driver: Option<Driver>,
}

#[derive(Debug)]
struct Driver {
    name: &'static str,
    queues: u32,
}

pub(crate) fn of<'a>(input: &Input<'a>) -> Result<Vec<Interface<'a>>, RenderError> {
    let interfaces = &input.vmi.spec.domain.devices.interfaces;
    interfaces
        .iter()
        .enumerate()
        .filter(|(_, spec)| spec.state != Some(InterfaceState::Absent))
        .map(|(index, spec)| interface(input, spec, index))
        .collect()
}

/// Virtual CPUs the guest starts with.
pub(crate) fn vcpus(vmi: &VirtualMachineInstance) -> u32 {
    let count = |value: Option<u32>| value.unwrap_or(1).max(1);
    vmi.spec.domain.cpu.as_ref().map_or(1, |cpu| {
        count(cpu.sockets)
            .saturating_mul(count(cpu.cores))
            .saturating_mul(count(cpu.threads))
    })
}

fn interface<'a>(
    input: &Input<'a>,
    spec: &'a network::Interface,
    index: usize,
) -> Result<Interface<'a>, RenderError> {
    refuse_unsupported(spec, index)?;
    let facts = input
        .facts
        .interfaces
        .iter()
        .find(|facts| facts.name == spec.name);
    let facts = facts.ok_or_else(|| RenderError::NotPlumbed {
        interface: spec.name.clone(),
    })?;
    let model = match spec.model.as_deref() {
        None | Some("" | "virtio") => crate::controllers::virtio_model(input.vmi),
        Some(other) => other,
    };
    let devices = &input.vmi.spec.domain.devices;
    let queues = vcpus(input.vmi).min(MOST_QUEUES);
    let is_multiqueue = devices.network_interface_multiqueue == Some(true);
    let driver = (is_multiqueue && model.starts_with("virtio")).then_some(Driver {
        // The vhost device goes with KVM.
        name: match input.facts.acceleration {
            Acceleration::Kvm => "vhost",
            Acceleration::Emulation => "qemu",
        },
        queues,
    });
    Ok(Interface {
        spec,
        facts,
        model,
        driver,
    })
}

fn refuse_unsupported(spec: &network::Interface, index: usize) -> Result<(), RenderError> {
    let field = |rest: &str| format!("spec.domain.devices.interfaces[{index}]{rest}");
    let uses = [
        (".slirp", spec.slirp.is_some()),
        (".sriov", spec.sriov.is_some()),
        (".macvtap", spec.macvtap.is_some()),
        (".passt", spec.passt.is_some()),
        (".passtBinding", spec.passt_binding.is_some()),
        (".binding", spec.binding.is_some()),
        (
            ".pciAddress",
            spec.pci_address
                .as_deref()
                .is_some_and(|address| !address.is_empty()),
        ),
    ];
    if let Some((rest, _)) = uses.into_iter().find(|(_, used)| *used) {
        return Err(RenderError::unsupported(field(rest)));
    }
    if spec.masquerade.is_none() && spec.bridge.is_none() {
        return Err(RenderError::missing(field(".masquerade")));
    }
    Ok(())
}

impl Interface<'_> {
    pub(crate) fn render(&self) -> Element {
        let target = Element::new("target")
            .attr("dev", &self.facts.tap)
            .attr("managed", "no");
        let order = self
            .spec
            .boot_order
            .map(|order| Element::new("boot").attr("order", order));
        // A boot ROM is only of use to a guest that may boot from the network.
        let rom = order
            .is_none()
            .then(|| Element::new("rom").attr("enabled", "no"));
        let is_down = self.spec.state == Some(InterfaceState::Down);
        let acpi = self.spec.acpi_index.filter(|index| *index > 0);
        Element::new("interface")
            .attr("type", "ethernet")
            .child(Element::new("mac").attr("address", &self.facts.mac))
            .child(target)
            .child(Element::new("model").attr("type", self.model))
            .children(self.driver.as_ref().map(Driver::render))
            .children(order)
            .child(Element::new("mtu").attr("size", self.facts.mtu))
            .children(is_down.then(|| Element::new("link").attr("state", "down")))
            .children(rom)
            .children(acpi.map(|index| Element::new("acpi").attr("index", index)))
            .alias(&self.spec.name)
    }
}

impl Driver {
    fn render(&self) -> Element {
        Element::new("driver")
            .attr("name", self.name)
            .attr("queues", self.queues)
    }
}
