//! A volume and what is opened in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// The name of the disk on a volume with a file system.
const DISK: &str = "disk.img";
/// Nothing of a guest may lead elsewhere, and no device or pipe may hold this process up.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// What a volume contains.
#[derive(Debug)]
pub(crate) enum Content {
    /// A disk on a file system.
    DiskIn(OwnedFd),
    /// A disk that is a block device.
    Device(PathBuf),
    /// Any files.
    Files(OwnedFd),
}

#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) content: Content,
}

/// Why a volume cannot be offered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("open volume {name}")]
    Open {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("volume {name} has no disk ({DISK})")]
    NoDisk { name: String },
    #[error("read the disk of volume {name}")]
    Disk {
        name: String,
        #[source]
        source: io::Error,
    },
}

impl Volume {
    /// The volume with a disk at this path, a directory or a block device.
    pub(crate) fn with_disk(name: &str, path: &Path) -> Result<Self, VolumeError> {
        let open = |source| VolumeError::Open {
            name: name.to_owned(),
            source,
        };
        let is_directory = std::fs::metadata(path).map_err(open)?.is_dir();
        let content = if is_directory {
            Content::DiskIn(directory(path).map_err(open)?)
        } else {
            Content::Device(path.to_owned())
        };
        let volume = Self {
            name: name.to_owned(),
            content,
        };
        match volume.disk() {
            Ok(_) => Ok(volume),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(VolumeError::NoDisk {
                name: name.to_owned(),
            }),
            Err(source) => Err(VolumeError::Disk {
                name: name.to_owned(),
                source,
            }),
        }
    }

    /// The volume with the files below this directory.
    pub(crate) fn with_files(name: &str, path: &Path) -> Result<Self, VolumeError> {
        let root = directory(path).map_err(|source| VolumeError::Open {
            name: name.to_owned(),
            source,
        })?;
        Ok(Self {
            name: name.to_owned(),
            content: Content::Files(root),
        })
    }

    /// The open disk.
    pub(crate) fn disk(&self) -> io::Result<File> {
        let file = match &self.content {
            Content::DiskIn(root) => open_in(root, Path::new(DISK))?,
            Content::Device(path) => File::open(path)?,
            Content::Files(_) => return Err(io::ErrorKind::NotFound.into()),
        };
        let kind = file.metadata()?.file_type();
        let is_device = std::os::unix::fs::FileTypeExt::is_block_device(&kind);
        let expected = match &self.content {
            Content::Device(_) => is_device || kind.is_file(),
            _ => kind.is_file(),
        };
        if expected {
            Ok(file)
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    /// The directory of a volume with files.
    pub(crate) fn files(&self) -> Option<&OwnedFd> {
        match &self.content {
            Content::Files(root) => Some(root),
            Content::DiskIn(_) | Content::Device(_) => None,
        }
    }
}

fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens what lies below a directory, without following any link.
pub(crate) fn open_in(root: impl AsFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), BENEATH)?.into())
}
