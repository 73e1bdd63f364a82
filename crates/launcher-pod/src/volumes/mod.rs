//! Storage of the pod and where the container sees them.
//!
//! Three sorts, in this order: what every guest or its features need (`system`), the volumes of the
//! VMI one by one (`guests`), and the claim on which a guest keeps its own state (`state`).

mod guests;
mod state;
mod system;

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeDevice, VolumeMount,
};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::firmware::KernelBootContainer;

use crate::{Input, PodError};

pub(crate) use self::guests::disk_directory;

/// Sees mounts that are made on the node later.
const HOST_TO_CONTAINER: &str = "HostToContainer";

/// What the pod has, and what its container sees of it.
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
pub(crate) fn pull_secrets(vmi: &VirtualMachineInstance) -> Vec<String> {
    let disks = vmi
        .spec
        .volumes
        .iter()
        .filter_map(|volume| volume.container_disk.as_ref());
    disks
        .filter_map(|disk| disk.image_pull_secret.clone())
        .chain(kernel_boot(vmi).and_then(|container| container.image_pull_secret.clone()))
        .filter(|secret| !secret.is_empty())
        .collect()
}

pub(crate) fn kernel_boot(vmi: &VirtualMachineInstance) -> Option<&KernelBootContainer> {
    let firmware = vmi.spec.domain.firmware.as_ref()?;
    firmware.kernel_boot.as_ref()?.container.as_ref()
}

/// Where a disk's image is found under the directory of all copied disks.
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

fn claim(name: &str, claim: &str, read_only: Option<bool>) -> Volume {
    Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.to_owned(),
            read_only: read_only.filter(|read_only| *read_only),
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
