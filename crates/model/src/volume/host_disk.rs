//! Disk images in files on the node.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::volumes::{self as wire, HostDiskType};

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

impl<'a> HostDisk<'a> {
    pub(super) fn of(disk: &'a wire::HostDisk) -> Self {
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
    pub(super) fn of(path: &'a str) -> Result<Self, HostPathError> {
        let (directory, name) = path.rsplit_once('/').ok_or(HostPathError)?;
        if !path.starts_with('/') || ["", ".", ".."].contains(&name) {
            return Err(HostPathError);
        }
        let directory = if directory.is_empty() { "/" } else { directory };
        Ok(Self { directory, name })
    }
}
