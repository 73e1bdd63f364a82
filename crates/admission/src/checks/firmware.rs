//! Firmware and direct kernel boot.

use validation::Violation;

use super::{
    features::is_on,
    input::{Input, given},
};

pub(super) fn bootloader(input: &Input<'_>) -> Vec<Violation> {
    let bootloader = input.firmware().and_then(|one| one.bootloader.as_ref());
    if bootloader.is_some_and(|one| one.bios.is_some() && one.efi.is_some()) {
        let detail = "bios and efi are both set; choose one";
        return vec![input.invalid("domain.firmware.bootloader", detail)];
    }
    Vec::new()
}

pub(super) fn secure_boot(input: &Input<'_>) -> Vec<Violation> {
    let domain = &input.spec.domain;
    let Some(efi) = input.efi() else {
        return Vec::new();
    };
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
    let Some(boot) = input.firmware().and_then(|one| one.kernel_boot.as_ref()) else {
        return Vec::new();
    };
    let path = "domain.firmware.kernelBoot";
    let Some(container) = &boot.container else {
        if given(boot.kernel_args.as_deref()).is_none() {
            return Vec::new();
        }
        let detail = "kernelArgs without a kernel; add container with image and kernelPath";
        return vec![input.invalid(path, detail)];
    };
    let paths = [
        ("kernelPath", given(container.kernel_path.as_deref())),
        ("initrdPath", given(container.initrd_path.as_deref())),
    ];
    let mut found = Vec::new();
    if container.image.is_empty() {
        let detail = "empty; name the image that holds the kernel";
        found.push(input.required(&format!("{path}.container.image"), detail));
    }
    if paths.iter().all(|(_, value)| value.is_none()) {
        let detail = "neither kernelPath nor initrdPath; name at least one";
        found.push(input.required(&format!("{path}.container"), detail));
    }
    for (field, value) in paths {
        if let Some(value) = value.filter(|value| !is_clean_path(value)) {
            let detail = not_clean(value);
            found.push(input.invalid(&format!("{path}.container.{field}"), detail));
        }
    }
    found
}

pub(super) fn acpi(input: &Input<'_>) -> Vec<Violation> {
    let Some(acpi) = input.firmware().and_then(|one| one.acpi.as_ref()) else {
        return Vec::new();
    };
    let path = "domain.firmware.acpi";
    let names = [
        ("slicNameRef", given(acpi.slic_name_ref.as_deref())),
        ("msdmNameRef", given(acpi.msdm_name_ref.as_deref())),
    ];
    if names.iter().all(|(_, name)| name.is_none()) {
        let detail = "neither slicNameRef nor msdmNameRef; name the volume of at least one table";
        return vec![input.invalid(path, detail)];
    }
    let mut found = Vec::new();
    for (field, name) in names {
        let Some(name) = name else { continue };
        let volume = input.spec.volumes.iter().find(|one| one.name == name);
        let detail = match volume {
            None => format!("no volume is named {name:?}; add one with secret"),
            Some(volume) if volume.secret.is_none() => {
                format!("volume {name:?} is not a secret; tables are read from secrets")
            }
            Some(_) => continue,
        };
        found.push(input.invalid(&format!("{path}.{field}"), detail));
    }
    found
}

pub(super) fn uuid(input: &Input<'_>) -> Vec<Violation> {
    let uuid = input.firmware().and_then(|one| given(one.uuid.as_deref()));
    let Some(uuid) = uuid.filter(|uuid| uuid::Uuid::try_parse(uuid).is_err()) else {
        return Vec::new();
    };
    let detail = format!(
        "{uuid:?} is not a UUID; use the form 5d307ca9-b3ef-428c-8861-06e72d69f223, or leave it out"
    );
    vec![input.invalid("domain.firmware.uuid", detail)]
}

/// Whether a path is absolute, names a file and has no `.`, `..` or empty components.
pub(super) fn is_clean_path(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        !rest.is_empty() && rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
    })
}

pub(super) fn not_clean(path: &str) -> String {
    format!("{path:?} is not a normalised absolute path; use the form /boot/vmlinuz")
}
