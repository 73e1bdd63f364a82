//! The volumes of the VMI, one by one, and the images it boots a kernel from.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource,
    ImageVolumeSource, LocalObjectReference, SecretVolumeSource, Volume, VolumeDevice,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::access_credentials::AccessCredential;
use kubevirt_api::volumes::{self, ContainerDiskSource, HostDisk, HostDiskType, SysprepSource};

use super::{Storage, claim, copied_disk, empty_dir, kernel_boot, mount, read_only, sub_path};
use crate::{ClaimMode, ContainerDisks, Input, PodError, guest, init};

const KERNEL_BOOT: &str = "kernel-boot-volume";
const PRIVATE: &str = "/var/run/kubevirt-private";
/// Room for one image of the metrics, which never grows.
const METRICS_SIZE: &str = "1Mi";

/// Where the container sees the directory of a disk's image.
pub(crate) fn disk_directory(volume: &str) -> String {
    format!("{PRIVATE}/vmi-disks/{volume}")
}

/// Where it sees a claim that is shared as a filesystem.
fn shared_directory(volume: &str) -> String {
    format!("{PRIVATE}/filesystems/{volume}")
}

pub(super) fn add(all: &mut Storage, input: &Input<'_>) -> Result<(), PodError> {
    for (index, volume) in guest::volumes(input.vmi, input.settings) {
        let one = One {
            input,
            volume,
            index,
        };
        one.add(all)?;
    }
    if let Some(container) = kernel_boot(input.vmi) {
        let policy = container.image_pull_policy.as_ref();
        let image = Image {
            name: KERNEL_BOOT,
            reference: &container.image,
            policy,
            directory: init::KERNEL_BOOT_DIRECTORY,
            path: "/var/run/kubevirt-kernel-boot",
        };
        image.add(all, input);
    }
    add_credentials(all, &input.vmi.spec.access_credentials);
    Ok(())
}

/// A volume of the VMI and its place in the list.
struct One<'a> {
    input: &'a Input<'a>,
    volume: &'a volumes::Volume,
    index: usize,
}

impl One<'_> {
    fn add(&self, all: &mut Storage) -> Result<(), PodError> {
        let volume = self.volume;
        if let Some(claim) = guest::claim_of(volume) {
            return self.add_claim(all, claim);
        }
        if let Some(disk) = &volume.container_disk {
            self.add_container_disk(all, disk);
        } else if let Some(disk) = &volume.host_disk {
            return self.add_host_disk(all, disk);
        } else if let Some(seed) = &volume.cloud_init_no_cloud {
            let user = seed.secret_ref.as_ref();
            self.add_seed_secrets(all, user, seed.network_data_secret_ref.as_ref());
        } else if let Some(seed) = &volume.cloud_init_config_drive {
            let user = seed.secret_ref.as_ref();
            self.add_seed_secrets(all, user, seed.network_data_secret_ref.as_ref());
        } else if let Some(sysprep) = &volume.sysprep {
            return self.add_sysprep(all, sysprep);
        } else if volume.downward_metrics.is_some() {
            self.add_metrics(all);
        } else if !self.add_files(all) && !needs_nothing(volume) {
            let field = format!("spec.volumes[{}]", self.index);
            return Err(PodError::unsupported(field));
        }
        Ok(())
    }

    fn field(&self, rest: &str) -> String {
        format!("spec.volumes[{}].{rest}", self.index)
    }

    fn add_claim(&self, all: &mut Storage, name: &str) -> Result<(), PodError> {
        let volume = &self.volume.name;
        let (kind, read_only_source) =
            match (&self.volume.persistent_volume_claim, &self.volume.ephemeral) {
                (Some(source), _) => ("persistentVolumeClaim", source.read_only),
                (None, Some(source)) => {
                    let source = source.persistent_volume_claim.as_ref();
                    ("ephemeral", source.and_then(|source| source.read_only))
                }
                (None, None) => ("dataVolume", None),
            };
        let known = self.input.around.claims.get(name);
        let known = known.ok_or_else(|| PodError::UnknownClaim {
            field: self.field(kind),
            claim: name.to_owned(),
        })?;
        all.volumes.push(claim(volume, name, read_only_source));
        match known.mode() {
            ClaimMode::Block => all.devices.push(VolumeDevice {
                name: volume.clone(),
                device_path: format!("/dev/{volume}"),
            }),
            ClaimMode::Filesystem => {
                let shared = guest::is_filesystem(self.input.vmi, volume);
                let path = if shared {
                    shared_directory(volume)
                } else {
                    disk_directory(volume)
                };
                let mount = mount(volume, &path);
                // What is written to an ephemeral disk goes elsewhere.
                let only_read = read_only_source == Some(true) || kind == "ephemeral";
                all.mounts
                    .push(if only_read { read_only(mount) } else { mount });
            }
        }
        Ok(())
    }

    fn add_container_disk(&self, all: &mut Storage, disk: &ContainerDiskSource) {
        let image = Image {
            name: &self.volume.name,
            reference: &disk.image,
            policy: disk.image_pull_policy.as_ref(),
            directory: &copied_disk(self.index),
            path: &format!("/var/run/kubevirt-image-volume/disk_{}", self.index),
        };
        image.add(all, self.input);
    }

    /// The directory of the image, as the node has it.
    fn add_host_disk(&self, all: &mut Storage, disk: &HostDisk) -> Result<(), PodError> {
        let parent = disk.path.rsplit_once('/').map(|(parent, _)| parent);
        let parent = parent.filter(|_| disk.path.starts_with('/') && !disk.path.ends_with('/'));
        let Some(parent) = parent else {
            let problem = "give the absolute path of a file on the node";
            return Err(PodError::invalid(self.field("hostDisk.path"), problem));
        };
        let parent = if parent.is_empty() { "/" } else { parent };
        let kind = match disk.type_ {
            HostDiskType::DiskOrCreate => "DirectoryOrCreate",
            _ => "Directory",
        };
        let name = &self.volume.name;
        let volume = Volume {
            name: name.clone(),
            host_path: Some(HostPathVolumeSource {
                path: parent.to_owned(),
                type_: Some(kind.to_owned()),
            }),
            ..Volume::default()
        };
        all.add(volume, mount(name, &disk_directory(name)));
        Ok(())
    }

    /// Config map, secret, fields of the pod: a directory from which a disk is made. Whether the
    /// volume is one of them.
    fn add_files(&self, all: &mut Storage) -> bool {
        let name = &self.volume.name;
        let mut volume = Volume {
            name: name.clone(),
            ..Volume::default()
        };
        let kind = if let Some(source) = &self.volume.config_map {
            volume.config_map = Some(ConfigMapVolumeSource {
                name: source.name.clone().unwrap_or_default(),
                optional: source.optional,
                ..ConfigMapVolumeSource::default()
            });
            "config-map"
        } else if let Some(source) = &self.volume.secret {
            volume.secret = Some(SecretVolumeSource {
                secret_name: source.secret_name.clone(),
                optional: source.optional,
                ..SecretVolumeSource::default()
            });
            "secret"
        } else if let Some(source) = &self.volume.downward_api {
            volume.downward_api = Some(DownwardAPIVolumeSource {
                items: Some(source.fields.clone()),
                default_mode: None,
            });
            "downwardapi"
        } else {
            return false;
        };
        let path = format!("{PRIVATE}/{kind}/{name}");
        all.add(volume, read_only(mount(name, &path)));
        true
    }

    fn add_sysprep(&self, all: &mut Storage, source: &SysprepSource) -> Result<(), PodError> {
        let name = &self.volume.name;
        let mut volume = Volume {
            name: name.clone(),
            ..Volume::default()
        };
        if let Some(map) = &source.config_map {
            volume.config_map = Some(ConfigMapVolumeSource {
                name: map.name.clone(),
                ..ConfigMapVolumeSource::default()
            });
        } else if let Some(secret) = &source.secret {
            volume.secret = Some(of_secret(&secret.name));
        } else {
            return Err(PodError::missing(self.field("sysprep")));
        }
        let path = format!("{PRIVATE}/sysprep/{name}");
        all.add(volume, read_only(mount(name, &path)));
        Ok(())
    }

    fn add_metrics(&self, all: &mut Storage) {
        let source = EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(METRICS_SIZE.to_owned())),
        };
        let name = &self.volume.name;
        all.add(
            empty_dir(name, source),
            mount(name, &format!("{PRIVATE}/downwardmetric-disk")),
        );
    }

    fn add_seed_secrets(
        &self,
        all: &mut Storage,
        user: Option<&LocalObjectReference>,
        network: Option<&LocalObjectReference>,
    ) {
        for (secret, suffix) in [(user, "udata"), (network, "ndata")] {
            let Some(secret) = secret else { continue };
            let name = format!("{}-{suffix}", self.volume.name);
            add_secret(all, &name, &secret.name);
        }
    }
}

/// Made by the launcher, out of nothing, or of what every container of the pod has anyway.
fn needs_nothing(volume: &volumes::Volume) -> bool {
    volume.empty_disk.is_some()
        || volume.service_account.is_some()
        || volume.container_path.is_some()
}

/// Each secret once, however many credentials come from it.
fn add_credentials(all: &mut Storage, credentials: &[AccessCredential]) {
    let mut names: Vec<&str> = Vec::new();
    for credential in credentials {
        let key = credential.ssh_public_key.as_ref();
        let key = key.and_then(|key| key.source.secret.as_ref());
        let password = credential.user_password.as_ref();
        let password = password.and_then(|password| password.source.secret.as_ref());
        for secret in key.into_iter().chain(password) {
            if !names.contains(&secret.secret_name.as_str()) {
                names.push(&secret.secret_name);
            }
        }
    }
    for secret in names {
        add_secret(all, &format!("{secret}-access-cred"), secret);
    }
}

fn add_secret(all: &mut Storage, name: &str, secret: &str) {
    let volume = Volume {
        name: name.to_owned(),
        secret: Some(of_secret(secret)),
        ..Volume::default()
    };
    let path = format!("{PRIVATE}/secret/{name}");
    all.add(volume, read_only(mount(name, &path)));
}

fn of_secret(name: &str) -> SecretVolumeSource {
    SecretVolumeSource {
        secret_name: Some(name.to_owned()),
        ..SecretVolumeSource::default()
    }
}

/// An image whose files the guest needs. However they come into the pod, the container finds them
/// at the same place.
struct Image<'a> {
    name: &'a str,
    reference: &'a str,
    policy: Option<&'a String>,
    /// Under that of all copied ones.
    directory: &'a str,
    /// In the container.
    path: &'a str,
}

impl Image<'_> {
    fn add(&self, all: &mut Storage, input: &Input<'_>) {
        match input.settings.container_disks {
            ContainerDisks::ImageVolumes => {
                let policy = self.policy.filter(|policy| !policy.is_empty());
                let volume = Volume {
                    name: self.name.to_owned(),
                    image: Some(ImageVolumeSource {
                        reference: Some(self.reference.to_owned()),
                        pull_policy: policy.cloned(),
                    }),
                    ..Volume::default()
                };
                all.add(volume, read_only(mount(self.name, self.path)));
            }
            ContainerDisks::Copied => {
                let mount = mount(init::DISKS_VOLUME, self.path);
                all.mounts.push(read_only(sub_path(mount, self.directory)));
            }
        }
    }
}
