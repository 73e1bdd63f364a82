//! The file or device that QEMU opens for a volume.

use model::{Disk, Volume, VolumeSource, paths};

use crate::{Input, RenderError, VolumeMode};

/// A file or device, and its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) format: Format,
    pub(crate) location: Location,
    /// The pod itself cannot write to it.
    pub(crate) is_read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Raw,
    Qcow2,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    File(String),
    Device(String),
}

/// The source of a disk's volume; `None` if there is no such volume.
pub(crate) fn of(input: &Input<'_>, disk: &Disk<'_>) -> Result<Option<Source>, RenderError> {
    let Some(volume) = input.guest.volume(disk.name()) else {
        return Ok(None);
    };
    check_name(volume.name)
        .map_err(|problem| RenderError::invalid(disk.field("name"), &problem))?;
    source(input, volume).map(Some)
}

fn source(input: &Input<'_>, volume: &Volume<'_>) -> Result<Source, RenderError> {
    let name = volume.name;
    Ok(match volume.source {
        VolumeSource::ContainerDisk(_) | VolumeSource::Ephemeral(_) => {
            file(Format::Qcow2, paths::overlay(name))
        }
        VolumeSource::EmptyDisk(_) => file(Format::Qcow2, paths::empty_disk(name)),
        VolumeSource::CloudInit(seed) => {
            let guest = input.guest;
            let path = paths::seed(guest.namespace(), guest.name(), seed.format);
            file(Format::Raw, path)
        }
        VolumeSource::ServiceAccount(_) => {
            file(Format::Raw, paths::SERVICE_ACCOUNT_IMAGE.to_owned())
        }
        VolumeSource::Files(files) => file(Format::Raw, files.image(name)),
        VolumeSource::PersistentVolumeClaim(claim) | VolumeSource::DataVolume(claim) => Source {
            is_read_only: claim.is_read_only,
            ..of_claim(input, name)
        },
        VolumeSource::HostDisk(disk) => {
            let image = disk.file.map_err(|problem| {
                RenderError::invalid(format!("{}.path", volume.field()), &problem)
            })?;
            let directory = paths::disk_directory(name);
            file(Format::Raw, format!("{directory}/{}", image.name))
        }
        VolumeSource::ContainerPath(_) => {
            let problem = "a directory cannot be a disk; use domain.devices.filesystems";
            return Err(RenderError::invalid(volume.field(), problem));
        }
        VolumeSource::DownwardMetrics => Source {
            is_read_only: true,
            ..file(Format::Raw, paths::DOWNWARD_METRICS_DISK.to_owned())
        },
        VolumeSource::MemoryDump(_) | VolumeSource::SavedState(_) => {
            let problem = "the volume of a memory dump cannot be a disk; remove the disk";
            return Err(RenderError::invalid(volume.field(), problem));
        }
        VolumeSource::Missing => return Err(RenderError::missing(volume.path())),
    })
}

fn file(format: Format, path: String) -> Source {
    Source {
        format,
        location: Location::File(path),
        is_read_only: false,
    }
}

/// A tenant's data is raw, even if its first bytes look like another format.
fn of_claim(input: &Input<'_>, name: &str) -> Source {
    let facts = input.facts.volumes.get(name);
    let is_plugged = input.facts.hotplugged.contains(name);
    match facts.map(|facts| facts.mode) {
        Some(VolumeMode::Block) => Source {
            format: Format::Raw,
            location: Location::Device(if is_plugged {
                paths::hotplugged(name)
            } else {
                paths::device(name)
            }),
            is_read_only: false,
        },
        Some(VolumeMode::Filesystem) | None => {
            let directory = if is_plugged {
                paths::hotplugged(name)
            } else {
                paths::disk_directory(name)
            };
            file(Format::Raw, format!("{directory}/{}", paths::CLAIM_IMAGE))
        }
    }
}

impl Format {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Volume names become parts of paths.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.starts_with('.') || name.is_empty() || !name.chars().all(plain) {
        return Err(format!("{name:?} is not a usable volume name"));
    }
    Ok(())
}
