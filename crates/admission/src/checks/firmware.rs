//! Firmware, direct kernel boot and Hyper-V enlightenments.

use kubevirt_api::features::{FeatureHyperv, FeatureState};

use super::Input;
use crate::violation::Violation;

pub(super) fn bootloader(input: &Input<'_>) -> Vec<Violation> {
    let firmware = input.spec.domain.firmware.clone().unwrap_or_default();
    let bootloader = firmware.bootloader.unwrap_or_default();
    let mut found = Vec::new();
    if bootloader.bios.is_some() && bootloader.efi.is_some() {
        let detail = "bios and efi together; choose one";
        found.push(input.invalid("domain.firmware.bootloader", detail));
    }
    if bootloader.bios.is_some() && input.architecture() == "arm64" {
        let detail = "there is no BIOS on arm64; use efi: {}";
        found.push(input.not_supported("domain.firmware.bootloader.bios", detail));
    }
    found
}

pub(super) fn secure_boot(input: &Input<'_>) -> Vec<Violation> {
    let domain = &input.spec.domain;
    let efi = domain
        .firmware
        .as_ref()
        .and_then(|firmware| firmware.bootloader.as_ref())
        .and_then(|bootloader| bootloader.efi.as_ref());
    let Some(efi) = efi else { return Vec::new() };
    let has_smm = domain
        .features
        .as_ref()
        .is_some_and(|features| is_on(features.smm.as_ref()));
    let has_tdx = domain
        .launch_security
        .as_ref()
        .is_some_and(|security| security.tdx.is_some());
    if efi.secure_boot == Some(false) || has_smm || has_tdx {
        return Vec::new();
    }
    let detail =
        "secure boot needs features.smm; set features.smm.enabled: true or secureBoot: false";
    vec![input.invalid("domain.firmware.bootloader.efi.secureBoot", detail)]
}

pub(super) fn kernel_boot(input: &Input<'_>) -> Vec<Violation> {
    let firmware = input.spec.domain.firmware.clone().unwrap_or_default();
    let Some(boot) = firmware.kernel_boot else {
        return Vec::new();
    };
    let path = "domain.firmware.kernelBoot";
    let Some(container) = boot.container else {
        if boot.kernel_args.unwrap_or_default().is_empty() {
            return Vec::new();
        }
        let detail = "kernelArgs without a kernel; add container with image and kernelPath";
        return vec![input.invalid(path, detail)];
    };
    let kernel = container.kernel_path.unwrap_or_default();
    let initrd = container.initrd_path.unwrap_or_default();
    let mut found = Vec::new();
    if container.image.is_empty() {
        let detail = "empty; name the image that holds the kernel";
        found.push(input.required(&format!("{path}.container.image"), detail));
    }
    if kernel.is_empty() && initrd.is_empty() {
        let detail = "neither kernelPath nor initrdPath; name at least one";
        found.push(input.required(&format!("{path}.container"), detail));
    }
    for (field, value) in [("kernelPath", &kernel), ("initrdPath", &initrd)] {
        if !value.is_empty() && !is_clean_path(value) {
            let detail = not_clean(value);
            found.push(input.invalid(&format!("{path}.container.{field}"), detail));
        }
    }
    found
}

pub(super) fn hyperv(input: &Input<'_>) -> Vec<Violation> {
    let features = input.spec.domain.features.clone().unwrap_or_default();
    let path = "domain.features.hyperv";
    let mut found = Vec::new();
    let Some(hyperv) = features.hyperv else {
        return found;
    };
    let has_passthrough = features
        .hyperv_passthrough
        .is_some_and(|passthrough| passthrough.enabled == Some(true));
    if has_passthrough {
        let detail = "not together with hypervPassthrough; choose one";
        found.push(input.invalid(path, detail));
    }
    for (feature, needs) in missing(&hyperv) {
        let detail = format!("needs {needs}, which is switched off; switch it on");
        found.push(input.invalid(&format!("{path}.{feature}"), detail));
    }
    found
}

pub(super) fn uuid(input: &Input<'_>) -> Vec<Violation> {
    let firmware = input.spec.domain.firmware.clone().unwrap_or_default();
    let uuid = firmware.uuid.unwrap_or_default();
    if uuid.is_empty() || uuid::Uuid::try_parse(&uuid).is_ok() {
        return Vec::new();
    }
    let detail = format!(
        "{uuid:?} is no UUID; write one such as 5d307ca9-b3ef-428c-8861-06e72d69f223, or leave it out"
    );
    vec![input.invalid("domain.firmware.uuid", detail)]
}

/// An absolute path that names a file and stays where it says.
pub(super) fn is_clean_path(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        !rest.is_empty() && rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
    })
}

pub(super) fn not_clean(path: &str) -> String {
    format!("{path:?} is no clean absolute path; write one such as /boot/vmlinuz")
}

fn missing(hyperv: &FeatureHyperv) -> Vec<(&'static str, &'static str)> {
    let vpindex = is_on(hyperv.vpindex.as_ref());
    let synic_timer = hyperv
        .synictimer
        .as_ref()
        .is_some_and(|timer| timer.enabled == Some(true));
    let flush = hyperv
        .tlbflush
        .as_ref()
        .is_some_and(|flush| flush.enabled == Some(true));
    [
        (
            "evmcs",
            "vapic",
            is_on(hyperv.evmcs.as_ref()),
            is_on(hyperv.vapic.as_ref()),
        ),
        ("ipi", "vpindex", is_on(hyperv.ipi.as_ref()), vpindex),
        ("tlbflush", "vpindex", flush, vpindex),
        ("synic", "vpindex", is_on(hyperv.synic.as_ref()), vpindex),
        (
            "synictimer",
            "synic",
            synic_timer,
            is_on(hyperv.synic.as_ref()),
        ),
    ]
    .into_iter()
    .filter(|(_, _, wanted, satisfied)| *wanted && !satisfied)
    .map(|(feature, needs, ..)| (feature, needs))
    .collect()
}

fn is_on(state: Option<&FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled != Some(false))
}
