//! The claim on which a guest keeps what is neither disk nor memory: firmware variables, the
//! contents of its TPM, the record of changed blocks. Each part has its own directory there.

use super::{Storage, claim, mount, sub_path};
use crate::guest::{self, State};
use crate::{Input, PodError};

const NAME: &str = "vm-state";
const LIBVIRT: &str = "/var/run/kubevirt-private/libvirt/qemu";

pub(super) fn add(all: &mut Storage, input: &Input<'_>) -> Result<(), PodError> {
    let kept = guest::state(input.vmi);
    let Some((_, field)) = kept.first() else {
        return Ok(());
    };
    let Some(name) = &input.around.state_claim else {
        return Err(PodError::missing(format!(
            "the claim for what {field} keeps"
        )));
    };
    all.volumes.push(claim(NAME, name, None));
    let mut part = |directory: &str, path: &str| {
        all.mounts.push(sub_path(mount(NAME, path), directory));
    };
    part("meta", "/var/run/kubevirt-private/backend-storage-meta");
    for (state, _) in kept {
        match state {
            State::FirmwareVariables => part("nvram", &format!("{LIBVIRT}/nvram")),
            State::Tpm => {
                part("swtpm", &format!("{LIBVIRT}/swtpm"));
                part(
                    "swtpm-localca",
                    "/var/run/kubevirt-private/var/lib/swtpm-localca",
                );
            }
            State::ChangedBlocks => part("cbt", &format!("{LIBVIRT}/cbt")),
        }
    }
    Ok(())
}
