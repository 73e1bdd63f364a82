//! Identity and boot: UUID, SMBIOS, machine, firmware, kernel.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::domain::Chassis;
use kubevirt_api::firmware::{Firmware, KernelBoot};
use model::{Architecture, Bootloader, Guest, Unsupported, paths};

use crate::element::Element;
use crate::{Input, RenderError};

/// What libvirt calls an architecture, and the machine type of guests that name none.
fn platform(architecture: Architecture<'_>) -> Result<(&'static str, &'static str), RenderError> {
    match architecture {
        Architecture::Amd64 => Ok(("x86_64", "q35")),
        Architecture::Arm64 => Ok(("aarch64", "virt")),
        Architecture::S390x => Ok(("s390x", "s390-ccw-virtio")),
        Architecture::Unknown(_) => Err(Unsupported::architecture().into()),
    }
}

pub(crate) fn uuid(vmi: &VirtualMachineInstance) -> Result<&str, RenderError> {
    let firmware = vmi.spec.domain.firmware.as_ref();
    firmware
        .and_then(|firmware| firmware.uuid.as_deref())
        .filter(|uuid| !uuid.is_empty())
        .ok_or_else(|| RenderError::missing("spec.domain.firmware.uuid"))
}

pub(crate) fn sysinfo(input: &Input<'_>) -> Result<Element, RenderError> {
    let firmware = input.guest.vmi.spec.domain.firmware.as_ref();
    let serial = firmware.and_then(|firmware| firmware.serial.as_deref());
    let smbios = &input.facts.smbios;
    let entries = [
        ("uuid", Some(uuid(input.guest.vmi)?)),
        ("serial", serial.filter(|serial| !serial.is_empty())),
        ("manufacturer", Some(smbios.manufacturer.as_str())),
        ("family", Some(smbios.family.as_str())),
        ("product", Some(smbios.product.as_str())),
        ("sku", Some(smbios.sku.as_str())),
        ("version", Some(smbios.version.as_str())),
    ];
    let system = entries
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .map(|(name, value)| Element::new("entry").attr("name", name).text(value));
    Ok(Element::new("sysinfo")
        .attr("type", "smbios")
        .child(Element::new("system").children(system))
        .children(
            input
                .guest
                .vmi
                .spec
                .domain
                .chassis
                .as_ref()
                .and_then(chassis),
        ))
}

fn chassis(chassis: &Chassis) -> Option<Element> {
    let entries = [
        ("manufacturer", &chassis.manufacturer),
        ("version", &chassis.version),
        ("serial", &chassis.serial),
        ("asset", &chassis.asset),
        ("sku", &chassis.sku),
    ];
    let entries = entries.into_iter().filter_map(|(name, value)| {
        let value = value.as_deref().filter(|value| !value.is_empty())?;
        Some(Element::new("entry").attr("name", name).text(value))
    });
    let chassis = Element::new("chassis").children(entries);
    (!chassis.is_empty()).then_some(chassis)
}

/// The machine type that the guest names.
fn machine_type<'a>(guest: &Guest<'a>) -> Option<&'a str> {
    let machine = guest.vmi.spec.domain.machine.as_ref()?;
    let machine = machine.type_.as_deref()?;
    (!machine.is_empty()).then_some(machine)
}

/// Whether the machine has PCI Express: not `pc`, `pc-0.15` or `pc-i440fx-10.0`, and not s390x.
pub(crate) fn has_pci_express(guest: &Guest<'_>) -> bool {
    match guest.architecture {
        Architecture::S390x => false,
        Architecture::Amd64 => !machine_type(guest)
            .is_some_and(|machine| machine.starts_with("pc") && !machine.contains("q35")),
        _ => true,
    }
}

pub(crate) fn render(input: &Input<'_>) -> Result<Element, RenderError> {
    let spec = &input.guest.vmi.spec;
    let (arch, default_machine) = platform(input.guest.architecture)?;
    let machine = machine_type(input.guest).unwrap_or(default_machine);
    let firmware = spec.domain.firmware.as_ref();
    let kind = Element::new("type")
        .attr("arch", arch)
        .attr("machine", machine)
        .text("hvm");
    let has_smbios = input.guest.architecture != Architecture::S390x;
    let is_paused = spec.start_strategy == Some(kubevirt_api::vmi::StartStrategy::Paused);
    let boot_menu = Element::new("bootmenu")
        .attr("enable", "yes")
        .attr("timeout", 10_000);
    Ok(Element::new("os")
        .child(kind)
        .children(loader(input))
        .children(kernel(firmware)?)
        .children(is_paused.then_some(boot_menu))
        .children(firmware.and_then(acpi))
        .children(has_smbios.then(|| Element::new("smbios").attr("mode", "sysinfo")))
        .children(bios(input.guest.bootloader)))
}

fn loader(input: &Input<'_>) -> Vec<Element> {
    let Bootloader::Efi { is_secure, .. } = input.guest.bootloader else {
        return Vec::new();
    };
    let efi = &input.facts.efi;
    let security = input.guest.vmi.spec.domain.launch_security.as_ref();
    let has_snp = security.is_some_and(|security| security.snp.is_some());
    let has_tdx = security.is_some_and(|security| security.tdx.is_some());
    let loader = |kind: &str, is_secure: bool, code: &str| {
        Element::new("loader")
            .attr("readonly", "yes")
            .attr("secure", if is_secure { "yes" } else { "no" })
            .attr("type", kind)
            .text(code)
    };
    // Firmware that is measured at the start keeps no variables.
    if has_snp {
        return vec![loader("rom", is_secure, &efi.snp_code)];
    }
    if has_tdx {
        let code = if is_secure {
            &efi.tdx_secure_code
        } else {
            &efi.tdx_code
        };
        return vec![loader("rom", false, code)];
    }
    let (code, vars) = match (input.guest.architecture, is_secure) {
        (Architecture::Arm64, _) => (&efi.arm64_code, &efi.arm64_vars),
        (_, true) => (&efi.secure_code, &efi.secure_vars),
        (_, false) => (&efi.code, &efi.vars),
    };
    let nvram = Element::new("nvram")
        .attr("template", vars)
        .text(paths::nvram(input.guest.name()));
    vec![loader("pflash", is_secure, code), nvram]
}

/// Tables from the files of secrets.
fn acpi(firmware: &Firmware) -> Option<Element> {
    let acpi = firmware.acpi.as_ref()?;
    let tables = [("slic", &acpi.slic_name_ref), ("msdm", &acpi.msdm_name_ref)];
    let tables = tables.into_iter().filter_map(|(kind, volume)| {
        let volume = volume.as_deref().filter(|volume| !volume.is_empty())?;
        let file = format!("{}/{kind}.bin", paths::secret(volume));
        Some(Element::new("table").attr("type", kind).text(file))
    });
    let acpi = Element::new("acpi").children(tables);
    (!acpi.is_empty()).then_some(acpi)
}

fn bios(bootloader: Bootloader) -> Option<Element> {
    let uses_serial = bootloader == Bootloader::Bios { uses_serial: true };
    uses_serial.then(|| Element::new("bios").attr("useserial", "yes"))
}

fn kernel(firmware: Option<&Firmware>) -> Result<Vec<Element>, RenderError> {
    let Some(boot) = firmware.and_then(|firmware| firmware.kernel_boot.as_ref()) else {
        return Ok(Vec::new());
    };
    let mut elements = Vec::new();
    if let Some(container) = &boot.container {
        for (name, field, path) in [
            ("kernel", "kernelPath", &container.kernel_path),
            ("initrd", "initrdPath", &container.initrd_path),
        ] {
            if let Some(path) = path.as_deref().filter(|path| !path.is_empty()) {
                elements.push(Element::new(name).text(kernel_path(field, path)?));
            }
        }
    }
    elements.extend(arguments(boot));
    Ok(elements)
}

/// The path in the pod; it must not lead out of the image.
fn kernel_path(field: &str, path: &str) -> Result<String, RenderError> {
    if path.split('/').any(|part| part == "..") {
        let field = format!("spec.domain.firmware.kernelBoot.container.{field}");
        return Err(RenderError::invalid(field, "must not contain \"..\""));
    }
    Ok(paths::kernel_boot_file(path))
}

fn arguments(boot: &KernelBoot) -> Option<Element> {
    let arguments = boot
        .kernel_args
        .as_deref()
        .filter(|text| !text.is_empty())?;
    Some(Element::new("cmdline").text(arguments))
}
