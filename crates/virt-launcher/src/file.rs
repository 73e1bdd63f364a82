//! Files that are there whole or not at all, and errors as one line.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Puts `bytes` in place of whatever is at `path`; readable by the owner alone.
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

/// A free name in the same directory, which is made if it is missing. What an earlier, killed
/// attempt left under that name is removed.
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
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => Ok(fresh),
    }
}
