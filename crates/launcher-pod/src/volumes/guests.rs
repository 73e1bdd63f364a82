//! The volumes of the VMI, one by one, and the images it boots a kernel from.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource,
    ImageVolumeSource, SecretVolumeSource, Volume, VolumeDevice,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::access_credentials::AccessCredential;
use kubevirt_api::volumes::{ContainerDiskSource, SysprepSource};
use model::{Claim, CloudInit, Files, HostDisk, HostFileCreation, SeedPart, VolumeSource, paths};

use super::storage::{Storage, claim, copied_disk, empty_dir, mount, read_only, sub_path};
use crate::{ClaimMode, ContainerDisks, Input, PodError, guest, init};

const KERNEL_BOOT: &str = "kernel-boot-volume";
/// One image of the metrics fits; it never grows.
const METRICS_SIZE: &str = "1Mi";

pub(super) fn add(all: &mut Storage, input: &Input<'_>) -> Result<(), PodError> {
    for volume in guest::volumes(input.guest, input.settings) {
        GuestVolume { input, volume }.add(all)?;
    }
    if let Some(container) = input.guest.kernel_boot() {
        let image = Image {
            name: KERNEL_BOOT,
            reference: &container.image,
            policy: container.image_pull_policy.as_ref(),
            directory: init::KERNEL_BOOT_DIRECTORY,
            path: paths::KERNEL_BOOT,
        };
        image.add(all, input);
    }
    add_credentials(all, &input.guest.vmi.spec.access_credentials);
    Ok(())
}

struct GuestVolume<'a> {
    input: &'a Input<'a>,
    volume: &'a model::Volume<'a>,
}

impl GuestVolume<'_> {
    fn add(&self, all: &mut Storage) -> Result<(), PodError> {
        match self.volume.source {
            VolumeSource::PersistentVolumeClaim(claim) | VolumeSource::DataVolume(claim) => {
                return self.add_claim(all, claim, claim.is_read_only);
            }
            // The guest's writes go to an overlay.
            VolumeSource::Ephemeral(claim) => return self.add_claim(all, claim, true),
            VolumeSource::HostDisk(disk) => return self.add_host_disk(all, disk),
            VolumeSource::ContainerDisk(disk) => self.add_container_disk(all, disk),
            VolumeSource::CloudInit(seed) => self.add_seed_secrets(all, &seed),
            VolumeSource::Files(files) => return self.add_files(all, files),
            VolumeSource::DownwardMetrics => self.add_metrics(all),
            VolumeSource::SavedState(state) => self.add_saved_state(all, &state.claim_name),
            // The launcher makes the disk from nothing, or from files that every container of the
            // pod has; another pod attaches the claim of a memory dump.
            VolumeSource::EmptyDisk(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::MemoryDump(_) => {}
            VolumeSource::Missing => return Err(PodError::missing(self.volume.path())),
        }
        Ok(())
    }

    fn add_claim(
        &self,
        all: &mut Storage,
        source: Claim<'_>,
        is_read_only_mount: bool,
    ) -> Result<(), PodError> {
        let volume = self.volume.name;
        let known = self.input.surroundings.claims.get(source.name);
        let known = known.ok_or_else(|| PodError::UnknownClaim {
            field: self.volume.field(),
            claim: source.name.to_owned(),
        })?;
        all.volumes
            .push(claim(volume, source.name, source.is_read_only));
        match known.mode() {
            ClaimMode::Block => all.devices.push(VolumeDevice {
                name: volume.to_owned(),
                device_path: paths::device(volume),
            }),
            ClaimMode::Filesystem => {
                let path = if self.input.guest.is_filesystem(volume) {
                    paths::filesystem(volume)
                } else {
                    paths::disk_directory(volume)
                };
                let mount = mount(volume, &path);
                all.mounts.push(if is_read_only_mount {
                    read_only(mount)
                } else {
                    mount
                });
            }
        }
        Ok(())
    }

    /// virt-controller has made the claim, as a filesystem.
    fn add_saved_state(&self, all: &mut Storage, name: &str) {
        let volume = self.volume.name;
        let directory = paths::disk_directory(volume);
        all.add(claim(volume, name, false), mount(volume, &directory));
    }

    fn add_container_disk(&self, all: &mut Storage, disk: &ContainerDiskSource) {
        let image = Image {
            name: self.volume.name,
            reference: &disk.image,
            policy: disk.image_pull_policy.as_ref(),
            directory: &copied_disk(self.volume.index),
            path: &paths::image_volume(self.volume.index),
        };
        image.add(all, self.input);
    }

    /// Mounts the node's directory that contains the image.
    fn add_host_disk(&self, all: &mut Storage, disk: HostDisk<'_>) -> Result<(), PodError> {
        let file = disk.file.map_err(|problem| {
            let field = format!("{}.path", self.volume.field());
            PodError::invalid(field, &problem)
        })?;
        let kind = match disk.creation {
            HostFileCreation::IfMissing => "DirectoryOrCreate",
            HostFileCreation::Never => "Directory",
        };
        let name = self.volume.name;
        let volume = Volume {
            name: name.to_owned(),
            host_path: Some(HostPathVolumeSource {
                path: file.directory.to_owned(),
                type_: Some(kind.to_owned()),
            }),
            ..Volume::default()
        };
        all.add(volume, mount(name, &paths::disk_directory(name)));
        Ok(())
    }

    /// Mounts the files of a config map, a secret or the pod's own fields, from which the launcher
    /// makes a disk.
    fn add_files(&self, all: &mut Storage, files: Files<'_>) -> Result<(), PodError> {
        let name = self.volume.name;
        let mut volume = Volume {
            name: name.to_owned(),
            ..Volume::default()
        };
        match files {
            Files::ConfigMap(source) => {
                volume.config_map = Some(ConfigMapVolumeSource {
                    name: source.name.clone().unwrap_or_default(),
                    optional: source.optional,
                    ..ConfigMapVolumeSource::default()
                });
            }
            Files::Secret(source) => {
                volume.secret = Some(SecretVolumeSource {
                    secret_name: source.secret_name.clone(),
                    optional: source.optional,
                    ..SecretVolumeSource::default()
                });
            }
            Files::DownwardApi(source) => {
                volume.downward_api = Some(DownwardAPIVolumeSource {
                    items: Some(source.fields.clone()),
                    default_mode: None,
                });
            }
            Files::Sysprep(source) => self.set_sysprep(&mut volume, source)?,
        }
        all.add(volume, read_only(mount(name, &files.directory(name))));
        Ok(())
    }

    fn set_sysprep(&self, volume: &mut Volume, source: &SysprepSource) -> Result<(), PodError> {
        if let Some(map) = &source.config_map {
            volume.config_map = Some(ConfigMapVolumeSource {
                name: map.name.clone(),
                ..ConfigMapVolumeSource::default()
            });
        } else if let Some(secret) = &source.secret {
            volume.secret = Some(secret_source(&secret.name));
        } else {
            return Err(PodError::missing(self.volume.field()));
        }
        Ok(())
    }

    fn add_metrics(&self, all: &mut Storage) {
        let source = EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(METRICS_SIZE.to_owned())),
        };
        let name = self.volume.name;
        all.add(
            empty_dir(name, source),
            mount(name, paths::DOWNWARD_METRICS),
        );
    }

    fn add_seed_secrets(&self, all: &mut Storage, seed: &CloudInit<'_>) {
        for (data, part) in [
            (seed.user_data, SeedPart::UserData),
            (seed.network_data, SeedPart::NetworkData),
        ] {
            if let Some(secret) = data.secret {
                add_secret(all, &part.pod_volume(self.volume.name), secret);
            }
        }
    }
}

/// Mounts each secret once, even if several credentials come from it.
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
        add_secret(all, &paths::credential_volume(secret), secret);
    }
}

fn add_secret(all: &mut Storage, name: &str, secret: &str) {
    let volume = Volume {
        name: name.to_owned(),
        secret: Some(secret_source(secret)),
        ..Volume::default()
    };
    all.add(volume, read_only(mount(name, &paths::secret(name))));
}

fn secret_source(name: &str) -> SecretVolumeSource {
    SecretVolumeSource {
        secret_name: Some(name.to_owned()),
        ..SecretVolumeSource::default()
    }
}

/// An image whose files the guest needs. The container has them at the same path whether the node
/// mounts the image or an init container copies it.
struct Image<'a> {
    name: &'a str,
    reference: &'a str,
    policy: Option<&'a String>,
    /// Below the directory of all copied images.
    directory: &'a str,
    /// Mount path in the container.
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
