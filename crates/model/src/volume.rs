//! Volumes: where the data of each comes from.

mod cloud_init;
mod files;
mod host_disk;
mod reference;
mod storage;

use kubevirt_api::volumes::{
    self as wire, ContainerDiskSource, ContainerPathVolumeSource, EmptyDiskSource,
    MemoryDumpVolumeSource, ServiceAccountVolumeSource,
};

pub use self::cloud_init::{CloudInit, CloudInitFormat, SeedData, SeedPart};
pub use self::files::{FILES_LABEL, Files};
pub use self::host_disk::{HostDisk, HostFile, HostFileCreation, HostPathError};
pub use self::reference::{Reference, Referenced};
pub use self::storage::{Claim, Storage};

/// The volume, of the source `memoryDump`, that receives the whole state of a guest that is suspended. Both
/// names belong to virt-controller.
pub const SAVING_VOLUME: &str = "ferrovirt-saving";
/// The volume, of the same source, with the state from which a guest goes on.
pub const SAVED_STATE_VOLUME: &str = "ferrovirt-saved-state";

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
    /// The claim with the saved state from which the guest goes on. The guest does not see it.
    SavedState(&'a MemoryDumpVolumeSource),
    ContainerPath(&'a ContainerPathVolumeSource),
    /// No source, or one that this version does not know.
    Missing,
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
            name,
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
            memory_dump.as_ref().map(|dump| {
                if name == SAVED_STATE_VOLUME {
                    Self::SavedState(dump)
                } else {
                    Self::MemoryDump(dump)
                }
            }),
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
            Self::Files(files) => files.member(),
            Self::ServiceAccount(_) => "serviceAccount",
            Self::DownwardMetrics => "downwardMetrics",
            Self::MemoryDump(_) | Self::SavedState(_) => "memoryDump",
            Self::ContainerPath(_) => "containerPath",
            Self::Missing => "",
        }
    }

    /// What keeps the data of a disk or filesystem.
    pub fn storage(&self) -> Storage<'a> {
        match self {
            Self::PersistentVolumeClaim(claim) | Self::DataVolume(claim) => Storage::Claim(*claim),
            Self::Ephemeral(claim) => Storage::OverlaidClaim(*claim),
            Self::HostDisk(disk) => Storage::Host(*disk),
            // The guest does not see the claim of a memory dump.
            Self::MemoryDump(_)
            | Self::SavedState(_)
            | Self::CloudInit(_)
            | Self::ContainerDisk(_)
            | Self::EmptyDisk(_)
            | Self::Files(_)
            | Self::ServiceAccount(_)
            | Self::DownwardMetrics
            | Self::ContainerPath(_)
            | Self::Missing => Storage::Pod,
        }
    }

    /// The claim that holds the data of a disk or filesystem.
    pub fn claim(&self) -> Option<Claim<'a>> {
        match self.storage() {
            Storage::Claim(claim) | Storage::OverlaidClaim(claim) => Some(claim),
            Storage::Pod | Storage::Host(_) => None,
        }
    }

    /// The objects that the volume takes its data from, in the order of their fields.
    pub fn references(&self) -> Vec<Reference<'a>> {
        use Referenced as To;
        match self {
            Self::PersistentVolumeClaim(claim) => {
                vec![Reference::new(To::Claim, claim.name, "claimName")]
            }
            Self::Ephemeral(claim) => {
                let field = "persistentVolumeClaim.claimName";
                vec![Reference::new(To::Claim, claim.name, field)]
            }
            Self::DataVolume(claim) => vec![Reference::new(To::DataVolume, claim.name, "name")],
            Self::ServiceAccount(source) => {
                let name = source.service_account_name.as_deref().unwrap_or_default();
                let field = "serviceAccountName";
                vec![Reference::new(To::ServiceAccount, name, field)]
            }
            Self::Files(files) => files.references(),
            Self::CloudInit(seed) => {
                let user = seed.user_data.secret;
                let user = Reference::named(To::Secret, user, "secretRef.name");
                let network = seed.network_data.secret;
                let network = Reference::named(To::Secret, network, "networkDataSecretRef.name");
                user.into_iter().chain(network).collect()
            }
            Self::ContainerDisk(disk) => {
                let secret = disk.image_pull_secret.as_deref();
                let secret = Reference::named(To::Secret, secret, "imagePullSecret");
                secret.into_iter().collect()
            }
            // Another pod needs the claim of a memory dump; that of a saved state belongs to its VM.
            Self::MemoryDump(_)
            | Self::SavedState(_)
            | Self::HostDisk(_)
            | Self::EmptyDisk(_)
            | Self::DownwardMetrics
            | Self::ContainerPath(_)
            | Self::Missing => Vec::new(),
        }
    }

    /// Whether the volume may be attached and detached while the guest runs.
    pub fn is_hotpluggable(&self) -> bool {
        self.is_memory_dump() || self.claim().is_some_and(|claim| claim.is_hotpluggable)
    }

    /// Whether the volume receives the guest's memory, and has no disk.
    pub fn is_memory_dump(&self) -> bool {
        matches!(self, Self::MemoryDump(_))
    }

    /// The claim that a pod brings while the guest runs, if the volume is hot-pluggable.
    pub fn plugged_claim(&self) -> Option<&'a str> {
        match self {
            Self::MemoryDump(dump) => Some(&dump.claim_name),
            source => source.claim().map(|claim| claim.name),
        }
    }
}

#[cfg(test)]
mod tests;
