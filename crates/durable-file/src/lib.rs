//! Files that survive a power cut.
//!
//! A rename orders nothing: after a power cut the new name may refer to an empty file, or the old
//! file may be back. [`replace`] syncs the file before its rename and the directory after it, so
//! that a reader finds the old contents or the new ones, and after the return only the new ones.
//!
//! Out of scope: the format of the contents.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// The end of the name of a file that is being written. A leftover is overwritten by the next
/// [`replace`] of the same file; readers of the directory skip it.
pub const DRAFT: &str = ".new";

/// Permissions of a record that only its owner reads.
pub const PRIVATE: u32 = 0o600;

/// Replaces the file at `path` atomically and durably; the directory must exist.
pub fn replace(path: &Path, bytes: &[u8], permissions: u32) -> io::Result<()> {
    let draft = draft(path)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(permissions)
        .open(&draft)?;
    // A leftover keeps its permissions when it is opened.
    file.set_permissions(Permissions::from_mode(permissions))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&draft, path)?;
    sync_parent(path)
}

/// Makes creations, renames and removals in a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes the directory entry of `path` durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_directory(Path::new(".")),
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

/// Creates a directory and its missing parents durably.
pub fn create_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
    {
        create_directory(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_parent(path)
}

fn draft(path: &Path) -> io::Result<PathBuf> {
    let mut name: OsString = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?
        .to_owned();
    name.push(DRAFT);
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_with_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        fs::write(draft(&path).unwrap(), "left by a crash, and longer").unwrap();
        for (bytes, permissions) in [("one", PRIVATE), ("two", 0o644)] {
            replace(&path, bytes.as_bytes(), permissions).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), bytes);
            let found = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, permissions);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(replace(Path::new("/"), b"", PRIVATE).is_err());
    }

    #[test]
    fn directories_are_created_with_their_parents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        for _ in 0..2 {
            create_directory(&path).unwrap();
            assert!(path.is_dir());
        }
    }
}
