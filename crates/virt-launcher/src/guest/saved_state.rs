//! The file with a guest's saved state, from which the guest goes on once.
//!
//! **Invariant**: a state is marked as used, on disk, before a guest that was restored from it runs: memory
//! that is older than the disks would destroy them.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use launcher_channel::SAVED_SUFFIX;
use libvirt::SAVED_MAGIC;

/// How a file begins from whose state a guest has gone on.
const USED_MAGIC: &[u8; 16] = b"FerrovirtUsed\0\0\0";
/// The claim belongs to the tenant, who may put anything there.
const MAX_ENTRIES: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SavedStateError {
    #[error("there is no saved state in {0}")]
    Missing(String),
    #[error("there are several saved states in {0}")]
    Several(String),
    #[error("the saved state is incomplete")]
    Incomplete,
    #[error("the guest has gone on from this saved state before, so that its disks are newer")]
    Used,
    #[error("access the saved state")]
    Storage(#[from] io::Error),
}

/// The only state in the directory, if a guest can go on from it.
pub(super) fn find(directory: &str) -> Result<String, SavedStateError> {
    let mut files = files(directory)?.into_iter();
    let file = files
        .next()
        .ok_or_else(|| SavedStateError::Missing(directory.to_owned()))?;
    if files.next().is_some() {
        return Err(SavedStateError::Several(directory.to_owned()));
    }
    require_whole(&file)?;
    let path = file.into_os_string().into_string();
    path.map_err(|_invalid| SavedStateError::Missing(directory.to_owned()))
}

/// Brings a whole state to disk.
pub(super) fn settle(path: &str) -> Result<(), SavedStateError> {
    require_whole(Path::new(path))?;
    super::dumps::flush(path)?;
    Ok(())
}

/// Marks the state as used. Done before the guest runs.
pub(super) fn use_up(directory: &str) -> io::Result<()> {
    for path in files(directory)? {
        let mut file = File::options().write(true).open(path)?;
        file.write_all(USED_MAGIC)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Frees the space of a used state.
pub(super) fn empty(directory: &str) -> io::Result<()> {
    for path in files(directory)? {
        let file = File::options().write(true).open(path)?;
        file.set_len(u64::try_from(USED_MAGIC.len()).unwrap_or(0))?;
    }
    Ok(())
}

fn require_whole(path: &Path) -> Result<(), SavedStateError> {
    let mut magic = [0; 16];
    match File::open(path)?.read_exact(&mut magic) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(SavedStateError::Incomplete);
        }
        read => read?,
    }
    match &magic {
        SAVED_MAGIC => Ok(()),
        USED_MAGIC => Err(SavedStateError::Used),
        _ => Err(SavedStateError::Incomplete),
    }
}

/// Regular files with the name of a saved state; links are none.
fn files(directory: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)?.take(MAX_ENTRIES) {
        let entry = entry?;
        let name = entry.file_name();
        let is_state = name.as_encoded_bytes().ends_with(SAVED_SUFFIX.as_bytes());
        if is_state && entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(magic: &[u8]) -> Vec<u8> {
        [magic, b"memory"].concat()
    }

    #[test]
    fn state_is_used_once() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().to_str().unwrap();
        let file = dir.path().join("a.saved");
        assert!(matches!(find(name), Err(SavedStateError::Missing(_))));
        fs::write(dir.path().join("disk.img"), "").unwrap();
        fs::write(&file, state(SAVED_MAGIC)).unwrap();
        settle(file.to_str().unwrap()).unwrap();
        assert_eq!(find(name).unwrap(), file.to_str().unwrap());
        use_up(name).unwrap();
        use_up(name).unwrap();
        // The bytes stay until the guest runs.
        assert_eq!(fs::read(&file).unwrap(), state(USED_MAGIC));
        assert!(matches!(find(name), Err(SavedStateError::Used)));
        empty(name).unwrap();
        assert_eq!(fs::read(&file).unwrap(), USED_MAGIC);
        assert!(matches!(find(name), Err(SavedStateError::Used)));
    }

    #[test]
    fn only_one_whole_regular_file_is_a_state() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().to_str().unwrap();
        let file = dir.path().join("a.saved");
        for half in [&b"LibvirtQemudPart memory"[..], b"short", b""] {
            fs::write(&file, half).unwrap();
            assert!(matches!(find(name), Err(SavedStateError::Incomplete)));
        }
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert!(matches!(find(name), Err(SavedStateError::Missing(_))));
        for name in ["b.saved", "c.saved"] {
            fs::write(dir.path().join(name), state(SAVED_MAGIC)).unwrap();
        }
        assert!(matches!(find(name), Err(SavedStateError::Several(_))));
    }
}
