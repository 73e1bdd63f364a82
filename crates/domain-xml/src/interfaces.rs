//! Network interfaces.

use model::{Binding, LinkState, Unsupported};

use crate::element::Element;
use crate::{Acceleration, Input, InterfaceFacts, RenderError, virtio};

#[derive(Debug)]
pub(crate) struct Interface<'a> {
    parsed: model::Interface<'a>,
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
    let interfaces = input.guest.plugged_interfaces();
    interfaces
        .map(|interface| resolve(input, *interface))
        .collect()
}

fn resolve<'a>(
    input: &Input<'a>,
    interface: model::Interface<'a>,
) -> Result<Interface<'a>, RenderError> {
    match interface.binding {
        Binding::Masquerade | Binding::Bridge => {}
        Binding::Sriov | Binding::Passt | Binding::Plugin(_) | Binding::Withdrawn(_) => {
            return Err(Unsupported::binding(&interface).into());
        }
        Binding::Missing => return Err(RenderError::missing(interface.field("masquerade"))),
    }
    let mut facts = input.facts.interfaces.iter();
    let facts = facts.find(|facts| facts.name == interface.name());
    let facts = facts.ok_or_else(|| RenderError::NotPlumbed {
        interface: interface.name().to_owned(),
    })?;
    let queues = input.guest.queues(&interface);
    Ok(Interface {
        facts,
        model: interface
            .emulated_model()
            .unwrap_or_else(|| virtio::model(input.guest)),
        driver: queues.map(|queues| Driver {
            // Only KVM has the vhost device.
            name: match input.facts.acceleration {
                Acceleration::Kvm => "vhost",
                Acceleration::Emulation => "qemu",
            },
            queues,
        }),
        parsed: interface,
    })
}

impl Interface<'_> {
    pub(crate) fn render(&self) -> Element {
        let target = Element::new("target")
            .attr("dev", &self.facts.tap)
            .attr("managed", "no");
        let spec = self.parsed.spec;
        let order = spec
            .boot_order
            .map(|order| Element::new("boot").attr("order", order));
        // Only a guest that may boot from the network needs a boot ROM.
        let rom = order
            .is_none()
            .then(|| Element::new("rom").attr("enabled", "no"));
        let is_down = self.parsed.link == LinkState::Down;
        let acpi = spec.acpi_index.filter(|index| *index > 0);
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
            .alias(self.parsed.name())
    }
}

impl Driver {
    fn render(&self) -> Element {
        Element::new("driver")
            .attr("name", self.name)
            .attr("queues", self.queues)
    }
}
