//! The persistent volume claim on which a guest keeps state that is neither disk nor memory:
//! firmware variables, the contents of its TPM. Each part has its own
//! directory on the claim.

use model::{KeptState, paths};

use super::storage::{Storage, claim, mount, sub_path};
use crate::{Input, PodError};

const NAME: &str = "vm-state";

pub(super) fn add(all: &mut Storage, input: &Input<'_>) -> Result<(), PodError> {
    let kept = input.guest.kept_state();
    let Some(first) = kept.first() else {
        return Ok(());
    };
    let Some(name) = &input.surroundings.state_claim else {
        return Err(PodError::missing(format!(
            "the persistent volume claim for the state of {}",
            first.field()
        )));
    };
    all.volumes.push(claim(NAME, name, false));
    let mut part = |directory: &str, path: &str| {
        all.mounts.push(sub_path(mount(NAME, path), directory));
    };
    part("meta", paths::STATE_METADATA);
    for state in kept {
        match state {
            KeptState::FirmwareVariables => {
                part("nvram", &format!("{}/nvram", paths::LIBVIRT_QEMU));
            }
            KeptState::Tpm => {
                part("swtpm", &format!("{}/swtpm", paths::LIBVIRT_QEMU));
                part("swtpm-localca", paths::SWTPM_LOCAL_CA);
            }
        }
    }
    Ok(())
}
