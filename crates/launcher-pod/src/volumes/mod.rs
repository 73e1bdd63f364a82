//! The pod's volumes and where the container mounts them.
//!
//! Three sorts, in this order: volumes that every guest or its features need (`system`), the volumes
//! of the VMI one by one (`guests`), and the persistent volume claim on which a guest keeps its own
//! state (`state`).

mod guests;
mod state;
mod system;

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeDevice, VolumeMount,
};
use model::{Guest, VolumeSource};

use crate::{Input, PodError};

/// Mounts that the node makes later appear in the container.
const HOST_TO_CONTAINER: &str = "HostToContainer";

/// The pod's volumes, and the mounts and devices of its container.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) mounts: Vec<VolumeMount>,
    pub(crate) devices: Vec<VolumeDevice>,
}

pub(crate) fn of(input: &Input<'_>) -> Result<Storage, PodError> {
    let mut all = Storage::default();
    system::add(&mut all, input);
    guests::add(&mut all, input)?;
    state::add(&mut all, input)?;
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

/// The directory of a disk's image, below that of all copied disks.
pub(crate) fn copied_disk(index: usize) -> String {
    format!("disk_{index}")
}

impl Storage {
    fn add(&mut self, volume: Volume, mount: VolumeMount) {
        self.volumes.push(volume);
        self.mounts.push(mount);
    }

    fn add_empty_dir(&mut self, name: &str, path: &str) {
        self.add(
            empty_dir(name, EmptyDirVolumeSource::default()),
            mount(name, path),
        );
    }

    fn check_names(&self) -> Result<(), PodError> {
        let mut names: Vec<&str> = self.volumes.iter().map(|v| v.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(PodError::invalid(
                "spec.volumes",
                &format!(
                    "the name {:?} is used twice or belongs to the system",
                    pair[0]
                ),
            )),
        }
    }
}

fn empty_dir(name: &str, source: EmptyDirVolumeSource) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(source),
        ..Volume::default()
    }
}

fn claim(name: &str, claim: &str, is_read_only: bool) -> Volume {
    Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.to_owned(),
            read_only: is_read_only.then_some(true),
        }),
        ..Volume::default()
    }
}

pub(crate) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

fn sub_path(mount: VolumeMount, path: &str) -> VolumeMount {
    VolumeMount {
        sub_path: Some(path.to_owned()),
        ..mount
    }
}

fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount
    }
}
