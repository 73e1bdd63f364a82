//! State that a guest keeps from run to run besides its disks.

use kubevirt_api::{devices::TpmDevice, domain::DomainSpec};

use crate::Bootloader;

/// A part of the state that is kept on a claim of the guest's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptState {
    FirmwareVariables,
    Tpm,
}

/// The guest's TPM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tpm {
    /// The guest keeps its contents over restarts.
    pub is_persistent: bool,
}

impl KeptState {
    /// Everything that a guest with this domain keeps.
    pub fn of(domain: &DomainSpec) -> Vec<Self> {
        let bootloader = Bootloader::of(domain.firmware.as_ref());
        let keeps_variables = matches!(
            bootloader,
            Bootloader::Efi {
                is_persistent: true,
                ..
            }
        );
        let tpm = Tpm::of(domain.devices.tpm.as_ref());
        [
            (Self::FirmwareVariables, keeps_variables),
            (Self::Tpm, tpm.is_some_and(|tpm| tpm.is_persistent)),
        ]
        .into_iter()
        .filter_map(|(state, is_kept)| is_kept.then_some(state))
        .collect()
    }

    /// Whether a guest with this domain keeps state that belongs to its VM alone.
    pub fn is_bound_to_vm(domain: &DomainSpec) -> bool {
        !Self::of(domain).is_empty()
    }

    /// The field of the VMI that asks for it.
    pub fn field(self) -> &'static str {
        match self {
            Self::FirmwareVariables => "spec.domain.firmware.bootloader.efi.persistent",
            Self::Tpm => "spec.domain.devices.tpm.persistent",
        }
    }
}

impl Tpm {
    pub(crate) fn of(device: Option<&TpmDevice>) -> Option<Self> {
        let device = device.filter(|device| device.enabled != Some(false))?;
        Some(Self {
            is_persistent: device.persistent == Some(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_that_are_switched_off_keep_nothing() {
        use KeptState::{FirmwareVariables, Tpm};
        for (domain, expected) in [
            (json!({}), vec![]),
            (json!({"devices": {"tpm": {}}}), vec![]),
            (json!({"devices": {"tpm": {"persistent": true}}}), vec![Tpm]),
            (
                json!({"devices": {"tpm": {"persistent": true, "enabled": false}}}),
                vec![],
            ),
            (
                json!({"firmware": {"bootloader": {"efi": {"persistent": true}}}}),
                vec![FirmwareVariables],
            ),
            (
                json!({"devices": {"disks": [{"name": "a", "changedBlockTracking": true}]}}),
                vec![],
            ),
        ] {
            let parsed: DomainSpec = serde_json::from_value(domain.clone()).expect("a domain");
            assert_eq!(KeptState::of(&parsed), expected, "{domain}");
        }
    }

    #[test]
    fn tpm_is_on_unless_switched_off() {
        for (device, expected) in [
            (json!({}), Some(false)),
            (json!({"enabled": true, "persistent": true}), Some(true)),
            (json!({"enabled": false}), None),
        ] {
            let device: TpmDevice = serde_json::from_value(device).expect("a TPM");
            let found = Tpm::of(Some(&device)).map(|tpm| tpm.is_persistent);
            assert_eq!(found, expected, "{device:?}");
        }
        assert_eq!(Tpm::of(None), None);
    }
}
