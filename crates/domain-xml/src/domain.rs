//! The domain as a whole.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::quantity::Amount;

use crate::element::Element;
use crate::{
    Acceleration, Input, RenderError, clock, consoles, controllers, cpu, disks, features,
    interfaces, os, peripherals, unsupported,
};

/// Renders the XML for `virDomainDefineXML`.
pub fn render(input: &Input<'_>) -> Result<String, RenderError> {
    unsupported::check(input.vmi)?;
    let spec = &input.vmi.spec.domain;
    let memory = guest_memory(input.vmi)?;
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
        .child(Element::new("name").text(domain_name(input.vmi)))
        .child(Element::new("uuid").text(os::uuid(input.vmi)?))
        .child(metadata(input.vmi)?)
        .children(max_memory(input.vmi, memory)?)
        .child(bytes("memory", memory))
        .children(processors.render_vcpus())
        .child(os::sysinfo(input)?)
        .child(os::render(input)?)
        .children(features::render(input))
        .child(processors.render_cpu(memory))
        .children(clock::render(spec.clock.as_ref()))
        .children(on_reboot(input.vmi))
        .child(devices);

    let xml = domain.to_xml();
    match xml
        .chars()
        .find(|c| c.is_control() && !"\n\t\r".contains(*c))
    {
        None => Ok(xml),
        Some(found) => Err(RenderError::invalid(
            "spec",
            format!("control character {found:?} cannot be passed to the hypervisor"),
        )),
    }
}

/// The name under which libvirt knows the guest.
pub fn domain_name(vmi: &VirtualMachineInstance) -> String {
    let meta = &vmi.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = meta.name.as_deref().unwrap_or_default();
    format!("{namespace}_{name}")
}

/// Memory of the guest in bytes: asked for directly, else by request, else by limit.
pub fn guest_memory(vmi: &VirtualMachineInstance) -> Result<u64, RenderError> {
    let domain = &vmi.spec.domain;
    let direct = domain
        .memory
        .as_ref()
        .and_then(|memory| memory.guest.as_ref());
    let resources = domain.resources.as_ref();
    let candidates = [
        ("spec.domain.memory.guest", direct),
        (
            "spec.domain.resources.requests[memory]",
            resources.and_then(|r| r.requests.get("memory")),
        ),
        (
            "spec.domain.resources.limits[memory]",
            resources.and_then(|r| r.limits.get("memory")),
        ),
    ];
    let Some((field, quantity)) = candidates
        .into_iter()
        .find_map(|(field, quantity)| Some((field, quantity?)))
    else {
        return Err(RenderError::missing("spec.domain.memory.guest"));
    };
    let bytes = parse(field, quantity)?;
    if bytes == 0 {
        return Err(RenderError::invalid(field, "must be more than nothing"));
    }
    Ok(bytes)
}

/// Head room for memory hotplug, if it is more than the guest has.
fn max_memory(vmi: &VirtualMachineInstance, guest: u64) -> Result<Option<Element>, RenderError> {
    let memory = vmi.spec.domain.memory.as_ref();
    let Some(max) = memory.and_then(|memory| memory.max_guest.as_ref()) else {
        return Ok(None);
    };
    let max = parse("spec.domain.memory.maxGuest", max)?;
    Ok((max != guest).then(|| bytes("maxMemory", max).attr("slots", 0)))
}

fn parse(field: &str, quantity: &Quantity) -> Result<u64, RenderError> {
    Amount::parse(quantity)
        .map(Amount::units)
        .map_err(|error| RenderError::invalid(field, error.to_string()))
}

fn bytes(name: &'static str, value: u64) -> Element {
    Element::new(name).attr("unit", "b").text(value)
}

/// What whoever finds the domain must know to tell whose it is.
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
