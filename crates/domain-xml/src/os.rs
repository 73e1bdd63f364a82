//! Identity and boot: UUID, SMBIOS, machine, firmware, kernel.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::firmware::{Firmware, KernelBoot};
use model::{Architecture, Bootloader, Unsupported, paths};

use crate::element::Element;
use crate::{EfiFirmware, Input, RenderError};

/// Machine type of guests that name none.
const DEFAULT_MACHINE: &str = "q35";

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
        .child(Element::new("system").children(system)))
}

pub(crate) fn render(input: &Input<'_>) -> Result<Element, RenderError> {
    let spec = &input.guest.vmi.spec;
    let machine = spec
        .domain
        .machine
        .as_ref()
        .and_then(|machine| machine.type_.as_deref());
    let machine = machine
        .filter(|machine| !machine.is_empty())
        .unwrap_or(DEFAULT_MACHINE);
    let arch = match input.guest.architecture {
        Architecture::Amd64 => "x86_64",
        Architecture::Arm64 | Architecture::S390x | Architecture::Unknown(_) => {
            return Err(Unsupported::architecture().into());
        }
    };
    let firmware = spec.domain.firmware.as_ref();
    let kind = Element::new("type")
        .attr("arch", arch)
        .attr("machine", machine)
        .text("hvm");
    let is_paused = spec.start_strategy == Some(kubevirt_api::vmi::StartStrategy::Paused);
    let boot_menu = Element::new("bootmenu")
        .attr("enable", "yes")
        .attr("timeout", 10_000);
    Ok(Element::new("os")
        .child(kind)
        .children(loader(input))
        .children(kernel(firmware)?)
        .children(is_paused.then_some(boot_menu))
        .child(Element::new("smbios").attr("mode", "sysinfo"))
        .children(bios(input.guest.bootloader)))
}

fn loader(input: &Input<'_>) -> Vec<Element> {
    let (secure, files) = match input.guest.bootloader {
        Bootloader::Bios { .. } => return Vec::new(),
        Bootloader::Efi { is_secure, .. } => {
            let EfiFirmware {
                code,
                vars,
                secure_code,
                secure_vars,
            } = &input.facts.efi;
            if is_secure {
                ("yes", (secure_code, secure_vars))
            } else {
                ("no", (code, vars))
            }
        }
    };
    let (code, vars) = files;
    vec![
        Element::new("loader")
            .attr("readonly", "yes")
            .attr("secure", secure)
            .attr("type", "pflash")
            .text(code),
        Element::new("nvram")
            .attr("template", vars)
            .text(paths::nvram(input.guest.name())),
    ]
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
