//! The preferred boot loader.

use kubevirt_api::{
    firmware::{Bios, Bootloader, Efi},
    preference::FirmwarePreferences,
};

use crate::target::{Preference, Target};

pub(super) fn set_bootloader(target: &mut Target<'_>, preference: &Preference) {
    let Some(wanted) = preference.firmware.as_ref().and_then(bootloader) else {
        return;
    };
    let firmware = target.spec.domain.firmware.get_or_insert_default();
    let own = firmware.bootloader.get_or_insert_default();
    if own.bios.is_none() && own.efi.is_none() {
        *own = wanted;
    }
}

/// `preferredEfi` has precedence, then BIOS, then the deprecated fields for EFI.
fn bootloader(wanted: &FirmwarePreferences) -> Option<Bootloader> {
    let efi = |efi: Efi| Bootloader {
        efi: Some(efi),
        ..Bootloader::default()
    };
    if let Some(wanted) = &wanted.preferred_efi {
        return Some(efi(wanted.clone()));
    }
    if wanted.preferred_use_bios == Some(true) {
        return Some(Bootloader {
            bios: Some(Bios {
                use_serial: wanted.preferred_use_bios_serial,
            }),
            ..Bootloader::default()
        });
    }
    (wanted.preferred_use_efi == Some(true)).then(|| {
        efi(Efi {
            secure_boot: wanted.preferred_use_secure_boot,
            ..Efi::default()
        })
    })
}
