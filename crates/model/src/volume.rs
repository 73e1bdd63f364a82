//! Volumes: where the data of each comes from.

mod cloud_init;
mod host_disk;

use kubevirt_api::volumes::{
    self as wire, ConfigMapVolumeSource, ContainerDiskSource, ContainerPathVolumeSource,
    DownwardApiVolumeSource, EmptyDiskSource, MemoryDumpVolumeSource, SecretVolumeSource,
    ServiceAccountVolumeSource, SysprepSource,
};

pub use self::cloud_init::{CloudInit, CloudInitFormat, SeedData, SeedPart};
pub use self::host_disk::{HostDisk, HostFile, HostFileCreation, HostPathError};

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

#[cfg(test)]
mod tests;
