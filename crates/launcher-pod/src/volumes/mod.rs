//! The pod's volumes and where the container mounts them.
//!
//! Four sorts, in this order: volumes that every guest or its features need (`system`), the volumes
//! of the VMI one by one (`guests`), the persistent volume claim on which a guest keeps its own
//! state (`state`), and those of hook sidecars.

mod guests;
mod state;
mod storage;
mod system;

use model::{Guest, VolumeSource};

use crate::{Input, PodError, hooks};

pub use state::STATE_VOLUME;
pub(crate) use state::shared_directories;
pub(crate) use storage::{Storage, claim, copied_disk, empty_dir, mount, read_only, sub_path};

pub(crate) fn of(input: &Input<'_>) -> Result<Storage, PodError> {
    let mut all = Storage::default();
    system::add(&mut all, input);
    guests::add(&mut all, input)?;
    state::add(&mut all, input)?;
    hooks::add_volumes(&mut all, &hooks::of(input)?);
    all.check_names()?;
    Ok(all)
}

/// Pull secrets that the images of a VMI name.
pub(crate) fn pull_secrets(guest: &Guest<'_>) -> Vec<String> {
    let disks = guest
        .volumes
        .iter()
        .filter_map(|volume| match volume.source {
            VolumeSource::ContainerDisk(disk) => Some(disk),
            _ => None,
        });
    let kernel = guest.kernel_boot();
    disks
        .filter_map(|disk| disk.image_pull_secret.clone())
        .chain(kernel.and_then(|container| container.image_pull_secret.clone()))
        .filter(|secret| !secret.is_empty())
        .collect()
}
