//! The domain as a whole.

use kubevirt_api::VirtualMachineInstance;
use model::{Guest, ResourceList};

use crate::element::Element;
use crate::{
    Acceleration, Input, RenderError, clock, consoles, controllers, cpu, disks, features,
    interfaces, os, peripherals,
};

/// Renders the XML for `virDomainDefineXML`.
pub fn render(input: &Input<'_>) -> Result<String, RenderError> {
    let vmi = input.guest.vmi;
    let spec = &vmi.spec.domain;
    let memory = guest_memory(input.guest)?;
    let disks = disks::of(input)?;
    let interfaces = interfaces::of(input)?;
    let peripherals = peripherals::of(input);
    let controllers = controllers::of(input, &disks, &interfaces, &peripherals, memory);
    let processors = cpu::of(input)?;

    let devices = Element::new("devices")
        .children(controllers.render())
        .children(disks.iter().map(disks::Disk::render))
        .children(interfaces.iter().map(interfaces::Interface::render))
        .children(consoles::render(input)?)
        .children(peripherals.render());

    let domain = Element::new("domain")
        .attr(
            "type",
            match input.facts.acceleration {
                Acceleration::Kvm => "kvm",
                Acceleration::Emulation => "qemu",
            },
        )
        .attr("xmlns:qemu", "http://libvirt.org/schemas/domain/qemu/1.0")
        .child(Element::new("name").text(input.guest.domain_name()))
        .child(Element::new("uuid").text(os::uuid(vmi)?))
        .child(metadata(vmi)?)
        .children(max_memory(input.guest, memory)?)
        .child(bytes("memory", memory))
        .children(processors.render_vcpus())
        .child(os::sysinfo(input)?)
        .child(os::render(input)?)
        .children(features::render(input))
        .child(processors.render_cpu(memory))
        .children(clock::render(spec.clock.as_ref()))
        .children(on_reboot(vmi))
        .child(devices);

    let xml = domain.to_xml();
    match xml
        .chars()
        .find(|c| c.is_control() && !"\n\t\r".contains(*c))
    {
        None => Ok(xml),
        Some(found) => Err(RenderError::invalid(
            "spec",
            &format!("control character {found:?} cannot be passed to the hypervisor"),
        )),
    }
}

/// Bytes of the guest's memory: the VMI's own field, else the request, else the limit.
fn guest_memory(guest: &Guest<'_>) -> Result<u64, RenderError> {
    let field = "spec.domain.memory.guest".to_owned();
    let mut found = guest.memory()?.map(|bytes| (field.clone(), bytes));
    for list in [ResourceList::Requests, ResourceList::Limits] {
        if found.is_none() {
            let amount = guest.resource(list, "memory")?;
            found = amount.map(|amount| (list.field("memory"), amount.units()));
        }
    }
    match found {
        None => Err(RenderError::missing(field)),
        Some((field, 0)) => Err(RenderError::invalid(field, "must be more than zero")),
        Some((_, bytes)) => Ok(bytes),
    }
}

/// Maximum for memory hotplug, if it is more than the guest starts with.
fn max_memory(guest: &Guest<'_>, memory: u64) -> Result<Option<Element>, RenderError> {
    let max = guest.max_memory()?.filter(|max| *max != memory);
    Ok(max.map(|max| bytes("maxMemory", max).attr("slots", 0)))
}

fn bytes(name: &'static str, value: u64) -> Element {
    Element::new(name).attr("unit", "b").text(value)
}

/// The VMI's UID, which identifies the owner of a domain.
fn metadata(vmi: &VirtualMachineInstance) -> Result<Element, RenderError> {
    let uid = vmi.metadata.uid.as_deref();
    let uid = uid.ok_or_else(|| RenderError::missing("metadata.uid"))?;
    Ok(Element::new("metadata").child(
        Element::new("kubevirt")
            .attr("xmlns", "http://kubevirt.io")
            .child(Element::new("uid").text(uid)),
    ))
}

fn on_reboot(vmi: &VirtualMachineInstance) -> Option<Element> {
    use kubevirt_api::domain::RebootPolicy;
    let action = match vmi.spec.domain.reboot_policy.as_ref()? {
        RebootPolicy::Terminate => "destroy",
        RebootPolicy::Reboot | RebootPolicy::Other(_) => "restart",
    };
    Some(Element::new("on_reboot").text(action))
}
