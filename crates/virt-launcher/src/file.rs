//! Atomic replacement of files.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Atomically replaces the file at `path` with `bytes`; only its owner may read it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = beside(path)?;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    fs::rename(&fresh, path)
}

/// A free name in the same directory, which is created if it is missing. A leftover of an earlier
/// attempt that was killed is removed.
pub(crate) fn beside(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(parent)?;
    let mut name = path
        .file_name()
        .ok_or(io::ErrorKind::InvalidInput)?
        .to_owned();
    name.push(".new");
    let fresh = parent.join(name);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(fresh),
    }
}
