//! The parts of a pod that make a volume usable: the volume, its mount or its device.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeDevice, VolumeMount,
};

use crate::PodError;

/// Mounts that the node makes later appear in the container.
pub(super) const HOST_TO_CONTAINER: &str = "HostToContainer";

/// The pod's volumes, and the mounts and devices of its container.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) mounts: Vec<VolumeMount>,
    pub(crate) devices: Vec<VolumeDevice>,
}

/// The directory of a disk's image, below that of all copied disks.
pub(crate) fn copied_disk(index: usize) -> String {
    format!("disk_{index}")
}

impl Storage {
    pub(super) fn add(&mut self, volume: Volume, mount: VolumeMount) {
        self.volumes.push(volume);
        self.mounts.push(mount);
    }

    pub(super) fn add_empty_dir(&mut self, name: &str, path: &str) {
        self.add(
            empty_dir(name, EmptyDirVolumeSource::default()),
            mount(name, path),
        );
    }

    pub(super) fn check_names(&self) -> Result<(), PodError> {
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

pub(crate) fn empty_dir(name: &str, source: EmptyDirVolumeSource) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(source),
        ..Volume::default()
    }
}

pub(crate) fn claim(name: &str, claim: &str, is_read_only: bool) -> Volume {
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

pub(crate) fn sub_path(mount: VolumeMount, path: &str) -> VolumeMount {
    VolumeMount {
        sub_path: Some(path.to_owned()),
        ..mount
    }
}

pub(crate) fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount
    }
}
