//! The firmware that starts the guest.

use kubevirt_api::firmware::Firmware;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bootloader {
    Bios {
        /// The BIOS shows its messages on the serial console.
        uses_serial: bool,
    },
    Efi {
        /// It starts signed boot loaders only.
        is_secure: bool,
        /// The guest keeps its EFI variables over restarts.
        is_persistent: bool,
    },
}

impl Bootloader {
    pub(crate) fn of(firmware: Option<&Firmware>) -> Self {
        let bootloader = firmware.and_then(|firmware| firmware.bootloader.as_ref());
        if let Some(efi) = bootloader.and_then(|bootloader| bootloader.efi.as_ref()) {
            return Self::Efi {
                // The API's default is on.
                is_secure: efi.secure_boot != Some(false),
                is_persistent: efi.persistent == Some(true),
            };
        }
        let bios = bootloader.and_then(|bootloader| bootloader.bios.as_ref());
        Self::Bios {
            uses_serial: bios.is_some_and(|bios| bios.use_serial == Some(true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn boot_loader_is_bios_unless_efi_is_given() {
        let bios = |uses_serial| Bootloader::Bios { uses_serial };
        let efi = |is_secure, is_persistent| Bootloader::Efi {
            is_secure,
            is_persistent,
        };
        let cases: [(Value, Bootloader); 6] = [
            (json!({}), bios(false)),
            (json!({"bootloader": {"bios": {}}}), bios(false)),
            (
                json!({"bootloader": {"bios": {"useSerial": true}}}),
                bios(true),
            ),
            (json!({"bootloader": {"efi": {}}}), efi(true, false)),
            (
                json!({"bootloader": {"efi": {"secureBoot": false}}}),
                efi(false, false),
            ),
            (
                json!({"bootloader": {"efi": {"persistent": true}}}),
                efi(true, true),
            ),
        ];
        for (firmware, expected) in cases {
            let firmware: Firmware = serde_json::from_value(firmware).expect("firmware");
            assert_eq!(Bootloader::of(Some(&firmware)), expected, "{firmware:?}");
        }
        assert_eq!(Bootloader::of(None), bios(false));
    }
}
