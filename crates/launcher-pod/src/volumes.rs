//! Volumes of the pod and where the container sees them.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, ImageVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::firmware::KernelBootContainer;
use kubevirt_api::volumes::{self, ContainerDiskSource};

use crate::PodError;

/// Always there: name and place.
const EMPTY_DIRS: [(&str, &str); 5] = [
    ("private", "/var/run/kubevirt-private"),
    ("public", "/var/run/kubevirt"),
    ("sockets", "/var/run/kubevirt/sockets"),
    ("libvirt-runtime", "/var/run/libvirt"),
    ("ephemeral-disks", "/var/run/kubevirt-ephemeral-disks"),
];
const KERNEL_BOOT: &str = "kernel-boot-volume";
const SECRETS: &str = "/var/run/kubevirt-private/secret";

/// Volumes and mounts, in the same order.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) mounts: Vec<VolumeMount>,
}

pub(crate) fn of(vmi: &VirtualMachineInstance) -> Result<Volumes, PodError> {
    let mut all = Volumes::default();
    for (name, path) in EMPTY_DIRS {
        let volume = Volume {
            name: name.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        };
        all.add(volume, mount(name, path));
    }
    for (index, volume) in vmi.spec.volumes.iter().enumerate() {
        all.add_for(volume, index)?;
    }
    if let Some(container) = kernel_boot(vmi) {
        let policy = container.image_pull_policy.as_ref();
        all.add(
            image_volume(KERNEL_BOOT, &container.image, policy),
            read_only(mount(KERNEL_BOOT, "/var/run/kubevirt-kernel-boot")),
        );
    }
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

impl Volumes {
    fn add(&mut self, volume: Volume, mount: VolumeMount) {
        self.volumes.push(volume);
        self.mounts.push(mount);
    }

    fn add_for(&mut self, volume: &volumes::Volume, index: usize) -> Result<(), PodError> {
        if let Some(disk) = &volume.container_disk {
            self.add_container_disk(&volume.name, disk, index);
        } else if let Some(seed) = &volume.cloud_init_no_cloud {
            let user = seed.secret_ref.as_ref().map(|secret| &secret.name);
            let network = seed
                .network_data_secret_ref
                .as_ref()
                .map(|secret| &secret.name);
            self.add_seed_secrets(&volume.name, user, network);
        } else if let Some(seed) = &volume.cloud_init_config_drive {
            let user = seed.secret_ref.as_ref().map(|secret| &secret.name);
            let network = seed
                .network_data_secret_ref
                .as_ref()
                .map(|secret| &secret.name);
            self.add_seed_secrets(&volume.name, user, network);
        } else if volume.empty_disk.is_none() {
            // An empty disk is made by the launcher and needs nothing from the pod.
            let kind = kind_of(volume);
            return Err(PodError::unsupported(format!(
                "spec.volumes[{index}].{kind}"
            )));
        }
        Ok(())
    }

    fn add_container_disk(&mut self, name: &str, disk: &ContainerDiskSource, index: usize) {
        let path = format!("/var/run/kubevirt-image-volume/disk_{index}");
        self.add(
            image_volume(name, &disk.image, disk.image_pull_policy.as_ref()),
            read_only(mount(name, &path)),
        );
    }

    fn add_seed_secrets(&mut self, name: &str, user: Option<&String>, network: Option<&String>) {
        for (secret, suffix) in [(user, "udata"), (network, "ndata")] {
            let Some(secret) = secret else { continue };
            let name = format!("{name}-{suffix}");
            let volume = Volume {
                name: name.clone(),
                secret: Some(SecretVolumeSource {
                    secret_name: Some(secret.clone()),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            };
            self.add(
                volume,
                read_only(mount(&name, &format!("{SECRETS}/{name}"))),
            );
        }
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

fn kernel_boot(vmi: &VirtualMachineInstance) -> Option<&KernelBootContainer> {
    let firmware = vmi.spec.domain.firmware.as_ref()?;
    firmware.kernel_boot.as_ref()?.container.as_ref()
}

fn image_volume(name: &str, reference: &str, policy: Option<&String>) -> Volume {
    Volume {
        name: name.to_owned(),
        image: Some(ImageVolumeSource {
            reference: Some(reference.to_owned()),
            pull_policy: policy.filter(|policy| !policy.is_empty()).cloned(),
        }),
        ..Volume::default()
    }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount
    }
}

fn kind_of(volume: &volumes::Volume) -> &'static str {
    let kinds = [
        (
            "persistentVolumeClaim",
            volume.persistent_volume_claim.is_some(),
        ),
        ("dataVolume", volume.data_volume.is_some()),
        ("hostDisk", volume.host_disk.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("secret", volume.secret.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("serviceAccount", volume.service_account.is_some()),
        ("downwardMetrics", volume.downward_metrics.is_some()),
        ("sysprep", volume.sysprep.is_some()),
        ("memoryDump", volume.memory_dump.is_some()),
        ("containerPath", volume.container_path.is_some()),
    ];
    let found = kinds.into_iter().find(|(_, is)| *is);
    found.map_or("name", |(kind, _)| kind)
}
