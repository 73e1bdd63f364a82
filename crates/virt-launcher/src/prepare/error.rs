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
    #[error("find a disk in the image at {root}: {why}", root = root.display())]
    NoDisk { root: PathBuf, why: String },
    #[error("read the disk image {path}", path = path.display())]
    Image { path: PathBuf, source: FileError },
    #[error("accept the disk image {path}", path = path.display())]
    ForbiddenImage { path: PathBuf, source: Refusal },
    #[error("make the disk {path}", path = path.display())]
    Blueprint {
        path: PathBuf,
        source: BlueprintError,
    },
    #[error("make the seed {path}", path = path.display())]
    Seed {
        path: PathBuf,
        source: seed::SeedError,
    },
    #[error("make the disk {path}", path = path.display())]
    NoRoom { path: PathBuf, source: TooSmall },
    #[error("use {path}: it is neither a file nor what it should be", path = path.display())]
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
            FindError::NoDisk { why } => Self::NoDisk {
                root: root.to_owned(),
                why,
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
            Self::Io { .. } => Reason::PrepareFailed,
            Self::MissingFile { .. } => Reason::SeedFileMissing,
            Self::TooLarge { .. } => Reason::SeedFileTooLarge,
            Self::NoDisk { .. } => Reason::ContainerDiskMissing,
            Self::Image { .. } => Reason::DiskImageInvalid,
            Self::ForbiddenImage { .. } => Reason::DiskImageForbidden,
            Self::Blueprint { .. } | Self::Name { .. } => Reason::DiskInvalid,
            Self::Seed { .. } => Reason::SeedInvalid,
            Self::NoRoom { .. } => Reason::DiskDoesNotFit,
            Self::NotAFile { .. } => Reason::DiskNotAFile,
        }
    }

    /// Whether waiting may help: a full disk may be emptied and a missing secret may appear.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Io { .. } | Self::MissingFile { .. } | Self::NoRoom { .. }
        ) || matches!(
            self,
            Self::Image {
                source: FileError::Io(_),
                ..
            }
        )
    }
}
