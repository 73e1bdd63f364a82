//! Finding the file under an overlay.
//!
//! An image root was filled by a stranger: nothing under it is followed out of it, and no link in
//! it is followed at all.

use std::fs::File;
use std::path::{Path, PathBuf};

use disk_image::{Format, SECTOR};
use launcher_channel::Backing;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};

use container_disk::beneath;

use super::PrepareError;

/// What an overlay is made over.
pub(super) struct Under {
    /// As QEMU finds it.
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) virtual_size: u64,
}

/// Finds the file or device and says what it is.
pub(super) fn find(backing: &Backing) -> Result<Under, PrepareError> {
    match backing {
        Backing::File(path) => {
            let path = PathBuf::from(path);
            let file = File::open(&path).map_err(PrepareError::at(&path))?;
            probed(path, &file)
        }
        Backing::ImageRoot { root, path } => {
            let root = Path::new(root);
            let found = container_disk::find(root, path.as_deref());
            let found = found.map_err(|error| PrepareError::in_image(root, error))?;
            probed(root.join(&found.inside), &found.file)
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

/// An image from outside: what it is, and that it names no other file.
fn probed(path: PathBuf, file: &File) -> Result<Under, PrepareError> {
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
    Ok(Under {
        path,
        format: found.format,
        virtual_size: found.virtual_size,
    })
}

fn raw(path: &Path, file: &File, kind: FileType) -> Result<Under, PrepareError> {
    let at = PrepareError::at(path);
    let stat = rustix::fs::fstat(file).map_err(|errno| at(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(PrepareError::NotAFile {
            path: path.to_owned(),
        });
    }
    // The end is the size, of files and devices alike.
    let size = rustix::fs::seek(file, SeekFrom::End(0)).map_err(|errno| at(errno.into()))?;
    Ok(Under {
        format: Format::Raw,
        virtual_size: size.next_multiple_of(SECTOR),
        path: path.to_owned(),
    })
}
