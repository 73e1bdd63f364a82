//! Finds the backing file of an overlay.
//!
//! The content of an image root is untrusted: no path leads out of it, and no link in it is
//! followed.

use std::fs::File;
use std::path::{Path, PathBuf};

use disk_image::{Format, SECTOR};
use launcher_channel::Backing;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};

use container_disk::beneath;

use super::PrepareError;

/// The backing file of an overlay.
pub(super) struct Found {
    /// As QEMU opens it.
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) virtual_size: u64,
}

/// Finds the file or device, its format and its size.
pub(super) fn find(backing: &Backing) -> Result<Found, PrepareError> {
    match backing {
        Backing::File(path) => {
            let path = PathBuf::from(path);
            let file = File::open(&path).map_err(PrepareError::at(&path))?;
            probe(path, &file)
        }
        Backing::ImageRoot { root, path } => {
            let root = Path::new(root);
            let found = container_disk::find(root, path.as_deref());
            let found = found.map_err(|error| PrepareError::in_image(root, error))?;
            probe(root.join(&found.inside), &found.file)
        }
        Backing::Claim { directory, name } => {
            let directory = Path::new(directory);
            let whole = directory.join(name);
            let root = beneath::directory(directory).map_err(PrepareError::at(directory))?;
            let file = beneath::read(&root, Path::new(name)).map_err(PrepareError::at(&whole))?;
            raw(&whole, &File::from(file), FileType::RegularFile)
        }
        Backing::Device(path) => {
            let path = PathBuf::from(path);
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let opened = rustix::fs::open(&path, flags, Mode::empty());
            let file = opened.map_err(|errno| PrepareError::at(&path)(errno.into()))?;
            raw(&path, &File::from(file), FileType::BlockDevice)
        }
    }
}

/// Probes an untrusted image, and refuses one that names other files.
fn probe(path: PathBuf, file: &File) -> Result<Found, PrepareError> {
    let found = disk_image::probe_file(file).map_err(|source| PrepareError::Image {
        path: path.clone(),
        source,
    })?;
    found
        .check_container_disk()
        .map_err(|source| PrepareError::ForbiddenImage {
            path: path.clone(),
            source,
        })?;
    Ok(Found {
        path,
        format: found.format,
        virtual_size: found.virtual_size,
    })
}

fn raw(path: &Path, file: &File, kind: FileType) -> Result<Found, PrepareError> {
    let at = PrepareError::at(path);
    let stat = rustix::fs::fstat(file).map_err(|errno| at(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(PrepareError::NotAFile {
            path: path.to_owned(),
        });
    }
    // The offset of the end is the size of both files and devices.
    let size = rustix::fs::seek(file, SeekFrom::End(0)).map_err(|errno| at(errno.into()))?;
    Ok(Found {
        format: Format::Raw,
        virtual_size: size.next_multiple_of(SECTOR),
        path: path.to_owned(),
    })
}
