//! Why a file could not be prepared.

use std::io;
use std::path::{Path, PathBuf};

use container_disk::FindError;
use disk_image::{BlueprintError, FileError, Refusal, TooSmall};
use reasons::Reason;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("use {path}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("find {name} for the seed: none of {tried:?} exists")]
    MissingFile { name: String, tried: Vec<String> },
    #[error("read {path}: it is larger than {limit} bytes", path = path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("find a disk in the image at {root}: {reason}", root = root.display())]
    NoDisk { root: PathBuf, reason: String },
    #[error("read the disk image {path}", path = path.display())]
    Image { path: PathBuf, source: FileError },
    #[error("accept the disk image {path}", path = path.display())]
    ForbiddenImage { path: PathBuf, source: Refusal },
    #[error("create the disk {path}", path = path.display())]
    Blueprint {
        path: PathBuf,
        source: BlueprintError,
    },
    #[error("create the seed {path}", path = path.display())]
    Seed {
        path: PathBuf,
        source: seed::SeedError,
    },
    #[error("create the disk {path}", path = path.display())]
    NoSpace { path: PathBuf, source: TooSmall },
    #[error("use {path}: unexpected file type", path = path.display())]
    NotAFile { path: PathBuf },
    #[error("use {path}: its name is not UTF-8", path = path.display())]
    Name { path: PathBuf },
}

impl PrepareError {
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn in_image(root: &Path, error: FindError) -> Self {
        match error {
            FindError::NoDisk { reason } => Self::NoDisk {
                root: root.to_owned(),
                reason,
            },
            FindError::Unusable { path, source } => Self::Io {
                path: root.join(path),
                source,
            },
            FindError::NotAFile { path } => Self::NotAFile {
                path: root.join(path),
            },
        }
    }

    pub(crate) fn reason(&self) -> Reason {
        match self {
            // A full volume does not mean that the image is invalid.
            Self::Io { .. }
            | Self::Image {
                source: FileError::Io(_),
                ..
            } => Reason::PrepareFailed,
            Self::MissingFile { .. } => Reason::SeedFileMissing,
            Self::TooLarge { .. } => Reason::SeedFileTooLarge,
            Self::NoDisk { .. } => Reason::ContainerDiskMissing,
            Self::Image { .. } => Reason::DiskImageInvalid,
            Self::ForbiddenImage { .. } => Reason::DiskImageForbidden,
            Self::Blueprint { .. } | Self::Name { .. } => Reason::DiskInvalid,
            Self::Seed { .. } => Reason::SeedInvalid,
            Self::NoSpace { .. } => Reason::DiskDoesNotFit,
            Self::NotAFile { .. } => Reason::DiskNotAFile,
        }
    }

    /// Whether a retry may succeed: space may be freed and a missing secret may be mounted.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Io { .. } | Self::MissingFile { .. } | Self::NoSpace { .. }
        ) || matches!(
            self,
            Self::Image {
                source: FileError::Io(_),
                ..
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use disk_image::ProbeError;

    use super::*;

    #[test]
    fn full_volume_is_not_an_invalid_image() {
        let of = |source: FileError| PrepareError::Image {
            path: "disk.qcow2".into(),
            source,
        };
        let full = of(io::Error::from(io::ErrorKind::StorageFull).into());
        assert_eq!(
            (full.reason(), full.is_transient()),
            (Reason::PrepareFailed, true)
        );
        let empty = of(ProbeError::Empty.into());
        assert_eq!(
            (empty.reason(), empty.is_transient()),
            (Reason::DiskImageInvalid, false)
        );
    }
}
