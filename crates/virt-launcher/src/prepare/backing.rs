//! Finding the file under an overlay.
//!
//! An image root was filled by a stranger: nothing under it is followed out of it, and no link in
//! it is followed at all.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use launcher_channel::Backing;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::PrepareError;

/// Where a container disk keeps its file if its root does not.
const DISK_DIR: &str = "disk";

/// Opens the file and says where QEMU finds it.
pub(super) fn open(backing: &Backing) -> Result<(PathBuf, File), PrepareError> {
    match backing {
        Backing::File(path) => {
            let path = PathBuf::from(path);
            let file = File::open(&path).map_err(PrepareError::at(&path))?;
            Ok((path, file))
        }
        Backing::ImageRoot { root, path } => {
            let root = Path::new(root);
            let dir = File::open(root).map_err(PrepareError::at(root))?;
            let inside = match path {
                Some(path) => PathBuf::from(path.trim_start_matches('/')),
                None => only_file(root)?,
            };
            let whole = root.join(&inside);
            let file = open_beneath(&dir, &inside).map_err(PrepareError::at(&whole))?;
            Ok((whole, File::from(file)))
        }
    }
}

fn open_beneath(root: &File, path: &Path) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // Not blocking: the stranger may have left a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat2(root.as_fd(), path, flags, Mode::empty(), resolve)?)
}

/// The single file at the root, else the single one in `disk/`.
fn only_file(root: &Path) -> Result<PathBuf, PrepareError> {
    let none = |why| PrepareError::NoDisk {
        root: root.to_owned(),
        why,
    };
    for dir in ["", DISK_DIR] {
        let files = files_in(&root.join(dir)).map_err(PrepareError::at(root))?;
        match files.as_slice() {
            [] => {}
            [only] => return Ok(Path::new(dir).join(only)),
            _ => return Err(none("there is more than one file, and none is named")),
        }
    }
    Err(none("there is no file at its root or in disk/"))
}

fn files_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    if dir.symlink_metadata().map_or(true, |found| !found.is_dir()) {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.file_name().into());
        }
    }
    Ok(files)
}
