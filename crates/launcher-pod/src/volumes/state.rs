//! The persistent volume claim on which a guest keeps state that is neither disk nor memory:
//! firmware variables, the contents of its TPM. Each part has its own
//! directory on the claim.

use model::{Guest, KeptState, paths};

use super::storage::{Storage, claim, mount, sub_path};
use crate::{Input, PodError};

/// The name of the volume, and of its claim among those that virt-handler reads from the pod.
pub const STATE_VOLUME: &str = "vm-state";

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
    all.volumes.push(claim(STATE_VOLUME, name, false));
    let mut part = |directory: &str, path: &str| {
        all.mounts
            .push(sub_path(mount(STATE_VOLUME, path), directory));
    };
    part("meta", paths::STATE_METADATA);
    for state in kept {
        match state {
            KeptState::FirmwareVariables => part("nvram", paths::NVRAM),
            KeptState::Tpm => {
                part("swtpm", paths::SWTPM);
                part("swtpm-localca", paths::SWTPM_LOCAL_CA);
            }
        }
    }
    Ok(())
}

/// The directories on the claim that libvirt must not take for its own: the other pod of a migration has the same. A
/// kept TPM does not move, but libvirt would remove its state after a migration that was begun all the same.
pub(crate) fn shared_directories(guest: &Guest<'_>) -> impl Iterator<Item = String> {
    let kept = guest.kept_state().into_iter();
    kept.map(|state| match state {
        KeptState::FirmwareVariables => paths::NVRAM.to_owned(),
        KeptState::Tpm => paths::SWTPM.to_owned(),
    })
}
