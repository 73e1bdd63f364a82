//! Volumes: where the data of each comes from.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::volumes::{
    self as wire, ConfigMapVolumeSource, ContainerDiskSource, ContainerPathVolumeSource,
    DownwardApiVolumeSource, EmptyDiskSource, HostDiskType, MemoryDumpVolumeSource,
    SecretVolumeSource, ServiceAccountVolumeSource, SysprepSource,
};

/// A volume of the VMI.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Volume<'a> {
    /// Name that disks and filesystems refer to.
    pub name: &'a str,
    /// Position in `spec.volumes`.
    pub index: usize,
    pub source: VolumeSource<'a>,
}

/// Where the data of a volume comes from. A variant per member of the wire type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum VolumeSource<'a> {
    HostDisk(HostDisk<'a>),
    PersistentVolumeClaim(Claim<'a>),
    CloudInit(CloudInit<'a>),
    ContainerDisk(&'a ContainerDiskSource),
    /// A claim that is only read: writes go to an overlay, which is lost with the pod.
    Ephemeral(Claim<'a>),
    EmptyDisk(&'a EmptyDiskSource),
    /// The claim that a data volume creates; it has the name of the data volume.
    DataVolume(Claim<'a>),
    Files(Files<'a>),
    ServiceAccount(&'a ServiceAccountVolumeSource),
    DownwardMetrics,
    MemoryDump(&'a MemoryDumpVolumeSource),
    ContainerPath(&'a ContainerPathVolumeSource),
    /// No source, or one that this version does not know.
    Missing,
}

/// A persistent volume claim that holds the data of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    pub name: &'a str,
    pub is_read_only: bool,
    /// It may be attached and detached while the guest runs.
    pub is_hotpluggable: bool,
}

/// A disk image in a file on the node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostDisk<'a> {
    pub file: Result<HostFile<'a>, HostPathError>,
    pub creation: HostFileCreation,
    /// Size of a new image.
    pub capacity: Option<&'a Quantity>,
    /// The path is the same storage on every node.
    pub is_shared: bool,
}

/// An absolute path, split at its last slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFile<'a> {
    pub directory: &'a str,
    pub name: &'a str,
}

/// The path of a host disk names no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give the absolute path of a file on the node")]
pub struct HostPathError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostFileCreation {
    /// The file must exist.
    Never,
    IfMissing,
}

/// A cloud-init seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloudInit<'a> {
    pub format: CloudInitFormat,
    pub user_data: SeedData<'a>,
    pub network_data: SeedData<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudInitFormat {
    NoCloud,
    ConfigDrive,
}

/// The ways to give data to cloud-init. Admission permits one of them; where there are several, the
/// first one counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeedData<'a> {
    pub text: Option<&'a str>,
    pub base64: Option<&'a str>,
    /// Name of a secret that the pod mounts.
    pub secret: Option<&'a str>,
}

/// The data that a seed can take from a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeedPart {
    UserData,
    NetworkData,
}

/// Files that the pod mounts from another object, and the guest sees as a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Files<'a> {
    ConfigMap(&'a ConfigMapVolumeSource),
    Secret(&'a SecretVolumeSource),
    DownwardApi(&'a DownwardApiVolumeSource),
    Sysprep(&'a SysprepSource),
}

impl<'a> Volume<'a> {
    pub(crate) fn of(index: usize, volume: &'a wire::Volume) -> Self {
        Self {
            name: &volume.name,
            index,
            source: VolumeSource::of(volume),
        }
    }

    /// Path of the volume in the VMI.
    pub fn path(&self) -> String {
        format!("spec.volumes[{}]", self.index)
    }

    /// Path of the volume's source in the VMI.
    pub fn field(&self) -> String {
        match self.source {
            VolumeSource::Missing => self.path(),
            source => format!("{}.{}", self.path(), source.member()),
        }
    }
}

impl<'a> VolumeSource<'a> {
    /// The source of a volume; admission refuses volumes with more than one.
    pub fn of(volume: &'a wire::Volume) -> Self {
        Self::all(volume).next().unwrap_or(Self::Missing)
    }

    /// Every source that the wire type carries, in the order of its members.
    pub fn all(volume: &'a wire::Volume) -> impl Iterator<Item = Self> {
        let wire::Volume {
            name: _,
            host_disk,
            persistent_volume_claim,
            cloud_init_no_cloud,
            cloud_init_config_drive,
            sysprep,
            container_disk,
            ephemeral,
            empty_disk,
            data_volume,
            config_map,
            secret,
            downward_api,
            service_account,
            downward_metrics,
            memory_dump,
            container_path,
        } = volume;
        let files = |files: Option<Files<'a>>| files.map(Self::Files);
        [
            host_disk.as_ref().map(HostDisk::of).map(Self::HostDisk),
            persistent_volume_claim
                .as_ref()
                .map(Claim::of)
                .map(Self::PersistentVolumeClaim),
            cloud_init_no_cloud
                .as_ref()
                .map(CloudInit::no_cloud)
                .map(Self::CloudInit),
            cloud_init_config_drive
                .as_ref()
                .map(CloudInit::config_drive)
                .map(Self::CloudInit),
            files(sysprep.as_ref().map(Files::Sysprep)),
            container_disk.as_ref().map(Self::ContainerDisk),
            ephemeral
                .as_ref()
                .map(Claim::of_ephemeral)
                .map(Self::Ephemeral),
            empty_disk.as_ref().map(Self::EmptyDisk),
            data_volume
                .as_ref()
                .map(Claim::of_data_volume)
                .map(Self::DataVolume),
            files(config_map.as_ref().map(Files::ConfigMap)),
            files(secret.as_ref().map(Files::Secret)),
            files(downward_api.as_ref().map(Files::DownwardApi)),
            service_account.as_ref().map(Self::ServiceAccount),
            downward_metrics.as_ref().map(|_| Self::DownwardMetrics),
            memory_dump.as_ref().map(Self::MemoryDump),
            container_path.as_ref().map(Self::ContainerPath),
        ]
        .into_iter()
        .flatten()
    }

    /// Name of the member of the wire type.
    pub fn member(&self) -> &'static str {
        match self {
            Self::HostDisk(_) => "hostDisk",
            Self::PersistentVolumeClaim(_) => "persistentVolumeClaim",
            Self::CloudInit(seed) => match seed.format {
                CloudInitFormat::NoCloud => "cloudInitNoCloud",
                CloudInitFormat::ConfigDrive => "cloudInitConfigDrive",
            },
            Self::ContainerDisk(_) => "containerDisk",
            Self::Ephemeral(_) => "ephemeral",
            Self::EmptyDisk(_) => "emptyDisk",
            Self::DataVolume(_) => "dataVolume",
            Self::Files(files) => match files {
                Files::ConfigMap(_) => "configMap",
                Files::Secret(_) => "secret",
                Files::DownwardApi(_) => "downwardAPI",
                Files::Sysprep(_) => "sysprep",
            },
            Self::ServiceAccount(_) => "serviceAccount",
            Self::DownwardMetrics => "downwardMetrics",
            Self::MemoryDump(_) => "memoryDump",
            Self::ContainerPath(_) => "containerPath",
            Self::Missing => "",
        }
    }

    /// The claim that holds the data of a disk or filesystem. A memory dump's claim is none: the
    /// guest does not see it.
    pub fn claim(&self) -> Option<Claim<'a>> {
        match self {
            Self::PersistentVolumeClaim(claim)
            | Self::Ephemeral(claim)
            | Self::DataVolume(claim) => Some(*claim),
            Self::HostDisk(_)
            | Self::CloudInit(_)
            | Self::ContainerDisk(_)
            | Self::EmptyDisk(_)
            | Self::Files(_)
            | Self::ServiceAccount(_)
            | Self::DownwardMetrics
            | Self::MemoryDump(_)
            | Self::ContainerPath(_)
            | Self::Missing => None,
        }
    }

    /// Whether the volume may be attached and detached while the guest runs.
    pub fn is_hotpluggable(&self) -> bool {
        self.claim().is_some_and(|claim| claim.is_hotpluggable)
    }
}

impl<'a> Claim<'a> {
    fn of(source: &'a wire::PvcVolumeSource) -> Self {
        Self {
            name: &source.claim_name,
            is_read_only: source.read_only == Some(true),
            is_hotpluggable: source.hotpluggable == Some(true),
        }
    }

    fn of_data_volume(source: &'a wire::DataVolumeSource) -> Self {
        Self {
            name: &source.name,
            is_read_only: false,
            is_hotpluggable: source.hotpluggable == Some(true),
        }
    }

    fn of_ephemeral(source: &'a wire::EphemeralVolumeSource) -> Self {
        let claim = source.persistent_volume_claim.as_ref();
        Self {
            name: claim.map_or("", |claim| claim.claim_name.as_str()),
            is_read_only: claim.is_some_and(|claim| claim.read_only == Some(true)),
            is_hotpluggable: false,
        }
    }
}

impl<'a> HostDisk<'a> {
    fn of(disk: &'a wire::HostDisk) -> Self {
        Self {
            file: HostFile::of(&disk.path),
            creation: match disk.type_ {
                HostDiskType::DiskOrCreate => HostFileCreation::IfMissing,
                HostDiskType::Disk | HostDiskType::Other(_) => HostFileCreation::Never,
            },
            capacity: disk.capacity.as_ref(),
            is_shared: disk.shared == Some(true),
        }
    }
}

impl<'a> HostFile<'a> {
    fn of(path: &'a str) -> Result<Self, HostPathError> {
        let (directory, name) = path.rsplit_once('/').ok_or(HostPathError)?;
        if !path.starts_with('/') || ["", ".", ".."].contains(&name) {
            return Err(HostPathError);
        }
        let directory = if directory.is_empty() { "/" } else { directory };
        Ok(Self { directory, name })
    }
}

impl<'a> CloudInit<'a> {
    fn no_cloud(source: &'a wire::CloudInitNoCloudSource) -> Self {
        Self {
            format: CloudInitFormat::NoCloud,
            user_data: SeedData {
                text: source.user_data.as_deref(),
                base64: source.user_data_base64.as_deref(),
                secret: name_of(source.secret_ref.as_ref()),
            },
            network_data: SeedData {
                text: source.network_data.as_deref(),
                base64: source.network_data_base64.as_deref(),
                secret: name_of(source.network_data_secret_ref.as_ref()),
            },
        }
    }

    fn config_drive(source: &'a wire::CloudInitConfigDriveSource) -> Self {
        Self {
            format: CloudInitFormat::ConfigDrive,
            user_data: SeedData {
                text: source.user_data.as_deref(),
                base64: source.user_data_base64.as_deref(),
                secret: name_of(source.secret_ref.as_ref()),
            },
            network_data: SeedData {
                text: source.network_data.as_deref(),
                base64: source.network_data_base64.as_deref(),
                secret: name_of(source.network_data_secret_ref.as_ref()),
            },
        }
    }
}

fn name_of(reference: Option<&LocalObjectReference>) -> Option<&str> {
    reference.map(|reference| reference.name.as_str())
}

#[cfg(test)]
mod tests;
