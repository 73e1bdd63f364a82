//! Inputs, sound, graphics, watchdogs and other devices.

use kubevirt_api::devices::{InputBus, InputType, PanicDeviceModel};
use validation::Violation;

use super::input::Input;

pub(super) fn vsock(input: &Input<'_>) -> Vec<Violation> {
    let is_on = input.spec.domain.devices.autoattach_vsock == Some(true);
    let problem = input.needs_gate("domain.devices.autoattachVSOCK", "VSOCK");
    problem.filter(|_| is_on).into_iter().collect()
}

pub(super) fn inputs(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (i, device) in input.spec.domain.devices.inputs.iter().enumerate() {
        let path = format!("domain.devices.inputs[{i}]");
        if let Some(bus @ InputBus::Other(value)) = &device.bus
            && !value.is_empty()
        {
            let detail = format!("{:?} is unknown; use usb or virtio", bus.as_str());
            found.push(input.invalid(&format!("{path}.bus"), detail));
        }
        if device.type_ != InputType::Tablet {
            let detail = format!("{:?} is unknown; use tablet", device.type_.as_str());
            found.push(input.invalid(&format!("{path}.type"), detail));
        }
    }
    found
}

pub(super) fn sound(input: &Input<'_>) -> Vec<Violation> {
    let Some(sound) = &input.spec.domain.devices.sound else {
        return Vec::new();
    };
    let model = sound.model.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    if !["", "ich9", "ac97"].contains(&model) {
        let detail = format!("{model:?} is unknown; use ich9 or ac97");
        found.push(input.invalid("domain.devices.sound", detail));
    }
    if sound.name.is_empty() {
        let detail = "no name; give the device one";
        found.push(input.invalid("domain.devices.sound", detail));
    }
    found
}

pub(super) fn video(input: &Input<'_>) -> Vec<Violation> {
    let devices = &input.spec.domain.devices;
    let Some(video) = &devices.video else {
        return Vec::new();
    };
    let kind = video.type_.as_deref().unwrap_or_default();
    let known: &[&str] = match input.architecture() {
        "arm64" => &["virtio", "ramfb"],
        "s390x" => &["virtio"],
        _ => &["vga", "cirrus", "virtio", "ramfb", "bochs"],
    };
    let mut found = Vec::new();
    if devices.autoattach_graphics_device == Some(false) {
        let detail = "not supported with autoattachGraphicsDevice: false; remove one of them";
        found.push(input.invalid("domain.devices.video", detail));
    }
    if !kind.is_empty() && !known.contains(&kind) {
        let detail = format!("{kind:?} is unknown; use one of {}", known.join(", "));
        found.push(input.not_supported("domain.devices.video.type", detail));
    }
    found
}

pub(super) fn watchdog(input: &Input<'_>) -> Vec<Violation> {
    let Some(watchdog) = &input.spec.domain.devices.watchdog else {
        return Vec::new();
    };
    let i6300esb = watchdog.i6300esb.is_some();
    let diag288 = watchdog.diag288.is_some();
    let detail = match input.architecture() {
        "arm64" => "arm64 has no watchdog; leave it out",
        "s390x" if diag288 && !i6300esb => return Vec::new(),
        "s390x" => "s390x supports only diag288: {}",
        _ if i6300esb && !diag288 => return Vec::new(),
        _ => "use only i6300esb: {}",
    };
    vec![input.not_supported("domain.devices.watchdog", detail)]
}

pub(super) fn panic_devices(input: &Input<'_>) -> Vec<Violation> {
    let devices = &input.spec.domain.devices.panic_devices;
    let is_s390x = input.architecture() == "s390x";
    let mut found = Vec::new();
    for (i, device) in devices.iter().enumerate() {
        let path = format!("domain.devices.panicDevices[{i}]");
        if is_s390x {
            let detail = "s390x has panic handling built in; leave it out";
            found.push(input.invalid(&path, detail));
        }
        let unknown = device.model.as_ref().filter(|model| !model.is_known());
        if let Some(model) = unknown.filter(|model| !model.as_str().is_empty()) {
            let choices = PanicDeviceModel::KNOWN.join(", ");
            let detail = format!("{:?} is unknown; use one of {choices}", model.as_str());
            found.push(input.invalid(&format!("{path}.model"), detail));
        }
    }
    found
}

pub(super) fn downward_metrics(input: &Input<'_>) -> Vec<Violation> {
    let is_given = input.spec.domain.devices.downward_metrics.is_some();
    let problem = input.needs_gate("domain.devices.downwardMetrics", "DownwardMetrics");
    problem.filter(|_| is_given).into_iter().collect()
}

/// Fields that only other architectures support. Disk buses are checked with the disks.
pub(super) fn arm64(input: &Input<'_>) -> Vec<Violation> {
    if input.architecture() != "arm64" {
        return Vec::new();
    }
    let mut found = Vec::new();
    let model = input.cpu().and_then(|cpu| cpu.model.as_deref());
    let model = model.unwrap_or_default();
    if !["host-passthrough", ""].contains(&model) {
        let detail = format!("{model:?} does not work on arm64; use host-passthrough");
        found.push(input.not_supported("domain.cpu.model", detail));
    }
    let bootloader = input.firmware().and_then(|one| one.bootloader.as_ref());
    if bootloader.is_some_and(|bootloader| bootloader.bios.is_some()) {
        let detail = "arm64 has no BIOS; use efi: {}";
        found.push(input.not_supported("domain.firmware.bootloader.bios", detail));
    }
    if input.spec.domain.devices.sound.is_some() {
        let detail = "arm64 has no sound device; leave it out";
        found.push(input.not_supported("domain.devices.sound", detail));
    }
    found
}
