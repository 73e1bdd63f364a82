//! The domain as a whole.

use crate::controllers::Placed;
use crate::element::Element;
use crate::pinning::Pinning;
use crate::{
    Acceleration, Input, Near, RenderError, TaggedDevice, clock, consoles, controllers, cpu, disks,
    features, filesystems, host_devices, ignition, interfaces, io_threads, memory, numa, os,
    peripherals, pinning, security, tags,
};
use kubevirt_api::VirtualMachineInstance;
use model::Guest;

/// Renders the XML for `virDomainDefineXML`.
pub fn render(input: &Input<'_>) -> Result<String, RenderError> {
    let vmi = input.guest.vmi;
    let memory = memory::of(input.guest)?;
    let io_threads = io_threads::of(input.guest)?;
    let disks = disks::of(input, &io_threads)?;
    let filesystems = filesystems::of(input)?;
    let interfaces = interfaces::of(input)?;
    let peripherals = peripherals::of(input)?;
    let host_devices = host_devices::of(input)?;
    let placed = Placed {
        disks: &disks,
        interfaces: &interfaces,
        host_devices: &host_devices,
        peripherals: &peripherals,
    };
    let controllers = controllers::of(input, &placed, memory.bytes);
    let layout = &controllers.layout;
    let pinning = pinning::of(input, &io_threads)?;
    let cells = numa::of(input.guest, input.facts, pinning.as_ref(), memory.bytes)?;
    let processors = cpu::of(input, &memory, cells)?;

    let devices = Element::new("devices")
        .children(controllers.render())
        .children(disks::render(&disks, &layout.disks))
        .children(filesystems::render(&filesystems, &layout.filesystems))
        .children(interfaces::render(&interfaces, &layout.interfaces))
        .children(host_devices::render(&host_devices, &layout.host_devices))
        .children(consoles::render(input)?)
        .children(peripherals.render(layout));

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
        .children(memory.render(processors.cells()))
        .children(processors.render_vcpus())
        .children(io_threads.render())
        .children(
            pinning
                .as_ref()
                .and_then(|pinning| pinning.render(input.facts.acceleration)),
        )
        .children(processors.cells().map(numa::Cells::render_tuning))
        .child(os::sysinfo(input)?)
        .children(ignition::render(input.guest)?)
        .child(os::render(input)?)
        .children(features::render(input))
        .child(processors.render_cpu())
        .children(clock::render(vmi))
        .children(on_reboot(vmi))
        .child(devices)
        .children(security::render(input.guest));

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

/// The devices with a tag that the guest finds at a known address, as [`render`] places them.
pub fn tagged_devices(input: &Input<'_>) -> Result<Vec<TaggedDevice>, RenderError> {
    let spec = &input.guest.vmi.spec.domain.devices;
    if !tags::has_tags(spec) {
        return Ok(Vec::new());
    }
    let memory = memory::of(input.guest)?;
    let io_threads = io_threads::of(input.guest)?;
    let disks = disks::of(input, &io_threads)?;
    let interfaces = interfaces::of(input)?;
    let peripherals = peripherals::of(input)?;
    let host_devices = host_devices::of(input)?;
    let placed = Placed {
        disks: &disks,
        interfaces: &interfaces,
        host_devices: &host_devices,
        peripherals: &peripherals,
    };
    let layout = controllers::of(input, &placed, memory.bytes).layout;
    let rendered = tags::Rendered {
        disks: &disks::render(&disks, &layout.disks),
        interfaces: &interfaces::render(&interfaces, &layout.interfaces),
        host_devices: &host_devices::render(&host_devices, &layout.host_devices),
    };
    let pinning = pinning::of(input, &io_threads)?;
    Ok(tags::of(spec, rendered, |device| {
        let cell = input.facts.device_cells.get(&device);
        match (cell, &pinning) {
            (Some(cell), Some(pinning)) => near(input, pinning, *cell),
            _ => Near::default(),
        }
    }))
}

/// What a guest with CPUs of its own has on a cell of the host.
fn near(input: &Input<'_>, pinning: &Pinning, cell: u32) -> Near {
    let cells = pinning.cells();
    if pinning::sees_cells(input.guest) {
        let mut numbered = (0..).zip(cells.keys());
        let own = numbered.find(|(_, host)| **host == cell);
        return Near {
            cell: own.map(|(number, _)| number),
            cpus: Vec::new(),
        };
    }
    // Nothing pins the virtual CPUs of an emulated guest.
    let is_pinned = input.facts.acceleration == Acceleration::Kvm;
    let cpus = cells.get(&cell).filter(|_| is_pinned);
    Near {
        cell: None,
        cpus: cpus.cloned().unwrap_or_default(),
    }
}

/// The CPUs for everything in the pod except the guest's virtual CPUs; empty if there are no such.
pub fn separate_cpus(input: &Input<'_>) -> Result<Vec<u32>, RenderError> {
    let io_threads = io_threads::of(input.guest)?;
    let pinning = pinning::of(input, &io_threads)?;
    let separate = pinning.map(|pinning| pinning.emulator(input.facts.acceleration).to_vec());
    Ok(separate.unwrap_or_default())
}

/// The guest's memory at its start.
pub fn memory_bytes(guest: &Guest<'_>) -> Result<u64, RenderError> {
    memory::of(guest).map(|memory| memory.bytes)
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
