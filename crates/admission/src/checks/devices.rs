//! Inputs and the graphics card.

use kubevirt_api::devices::{InputBus, InputType};

use super::Input;
use crate::violation::Violation;

pub(super) fn inputs(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (i, device) in input.spec.domain.devices.inputs.iter().enumerate() {
        let path = format!("domain.devices.inputs[{i}]");
        if let Some(bus @ InputBus::Other(_)) = &device.bus {
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
        let detail = "not together with autoattachGraphicsDevice: false; remove one of them";
        found.push(input.invalid("domain.devices.video", detail));
    }
    if !kind.is_empty() && !known.contains(&kind) {
        let detail = format!("{kind:?} is unknown; use one of {}", known.join(", "));
        found.push(input.not_supported("domain.devices.video.type", detail));
    }
    found
}
