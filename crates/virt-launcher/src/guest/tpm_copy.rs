//! A copy of what a guest's TPM keeps, while the guest moves to another pod that has the same files.
//!
//! If the last step of the move fails in the new pod, libvirt removes the files there unless it knows that others
//! have them (version 11.3 does, by `shared_filesystems`); the guest goes on in the old pod and would lose its keys.
//! So the old launcher copies them while the guest is paused, and whoever runs the guest next puts back what is
//! missing.
//!
//! **Invariants**: files that are there are never replaced; a copy is complete or is not used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::task::Guest;
use crate::settings::is_shared;

/// Ends the names of the files without which a TPM is a new one.
const PERMANENT: &str = ".permall";
/// Bounds on what is copied: the state of a TPM has some small files in one directory.
const MAX_DEPTH: usize = 4;
const MAX_FILES: usize = 64;
const MAX_BYTES: u64 = 4 << 20;

/// The state of one domain's TPM, in a directory that several pods have.
#[derive(Debug, Clone)]
struct State {
    live: PathBuf,
    copy: PathBuf,
}

impl State {
    fn of(dir: &Path, domain: &str) -> Self {
        Self {
            live: dir.join(domain),
            copy: dir.join(format!("{domain}.copy")),
        }
    }

    /// Replaces the copy by one of what is there now.
    fn keep(&self) -> io::Result<()> {
        let fresh = self.copy.with_extension("copy-new");
        remove(&fresh)?;
        let files = files(&self.live)?;
        if !has_permanent(&files) {
            return Ok(());
        }
        copy(&self.live, &files, &fresh)?;
        remove(&self.copy)?;
        fs::rename(&fresh, &self.copy)
    }

    /// Puts the files of the copy back if the permanent ones are missing. Says whether it did.
    fn restore(&self) -> io::Result<bool> {
        let copied = files(&self.copy)?;
        if !has_permanent(&copied) || has_permanent(&files(&self.live)?) {
            return Ok(false);
        }
        copy(&self.copy, &copied, &self.live)?;
        Ok(true)
    }

    fn discard(&self) -> io::Result<()> {
        remove(&self.copy)
    }
}

fn has_permanent(files: &[PathBuf]) -> bool {
    let mut names = files.iter().filter_map(|file| file.to_str());
    names.any(|name| name.ends_with(PERMANENT))
}

/// The regular files below a directory, relative to it; none if it does not exist.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut open = vec![(PathBuf::new(), 0)];
    while let Some((below, depth)) = open.pop() {
        let entries = match fs::read_dir(dir.join(&below)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            // Links are not followed.
            let metadata = fs::symlink_metadata(entry.path())?;
            let path = below.join(entry.file_name());
            if metadata.is_dir() && depth < MAX_DEPTH {
                open.push((path, depth + 1));
            } else if metadata.is_file() && !entry.file_name().to_string_lossy().starts_with('.') {
                bytes += metadata.len();
                found.push(path);
            }
            if found.len() + open.len() > MAX_FILES || bytes > MAX_BYTES {
                let message = "the state of the TPM is larger than any TPM's";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
    }
    Ok(found)
}

fn copy(from: &Path, files: &[PathBuf], to: &Path) -> io::Result<()> {
    // The permanent files come last: without them the rest counts as missing.
    let (last, first): (Vec<_>, Vec<_>) = files
        .iter()
        .partition(|file| has_permanent(std::slice::from_ref(*file)));
    for file in first.into_iter().chain(last) {
        let bytes = fs::read(from.join(file))?;
        crate::file::replace(&to.join(file), &bytes)?;
    }
    Ok(())
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Guest {
    /// The state that the other pod of a migration has, too; `None` if the guest's TPM keeps nothing there.
    fn shared_tpm(&self) -> Option<State> {
        let domain = &self.store.record()?.plan.domain_uuid;
        let dir = self.paths.tpm();
        is_shared(&dir).then(|| State::of(&dir, domain))
    }

    /// Whether the TPM of the other pod of a migration has the same files.
    pub(super) fn has_shared_tpm(&self) -> bool {
        self.shared_tpm().is_some()
    }

    async fn with_shared_tpm<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&State) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let Some(state) = self.shared_tpm() else {
            return Ok(T::default());
        };
        let done = self.tasks.spawn_blocking(move || work(&state)).await;
        done.map_err(io::Error::other)?
    }

    /// The guest is paused: its TPM writes nothing.
    pub(super) async fn keep_tpm(&self) -> io::Result<()> {
        self.with_shared_tpm(State::keep).await
    }

    /// The guest goes on in this pod. The copy stays: the other pod may still remove the files.
    pub(super) async fn restore_tpm(&self) -> io::Result<()> {
        if self.with_shared_tpm(State::restore).await? {
            tracing::warn!(
                "the state of the guest's TPM was missing, and was restored from a copy"
            );
        }
        Ok(())
    }

    /// No other pod has the guest any more.
    pub(super) async fn settle_tpm(&self) -> io::Result<()> {
        self.restore_tpm().await?;
        self.with_shared_tpm(State::discard).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "69a61d3f-50cc-4611-b6e2-e53205a02bad";

    fn write(dir: &Path, name: &str, content: &str) {
        let path = dir.join(DOMAIN).join("tpm2").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(dir: &Path, name: &str) -> Option<String> {
        fs::read_to_string(dir.join(DOMAIN).join("tpm2").join(name)).ok()
    }

    #[test]
    fn files_that_libvirt_has_removed_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::of(dir.path(), DOMAIN);
        write(dir.path(), "tpm2-00.permall", "keys");
        write(dir.path(), "tpm2-00.volatilestate", "registers");
        write(dir.path(), ".lock", "");
        state.keep().unwrap();
        fs::remove_dir_all(&state.live).unwrap();
        assert!(state.restore().unwrap());
        assert_eq!(read(dir.path(), "tpm2-00.permall").unwrap(), "keys");
        assert_eq!(
            read(dir.path(), "tpm2-00.volatilestate").unwrap(),
            "registers"
        );
        assert_eq!(read(dir.path(), ".lock"), None);
        // The next move has a copy of its own.
        write(dir.path(), "tpm2-00.permall", "new keys");
        state.keep().unwrap();
        state.discard().unwrap();
        fs::remove_dir_all(&state.live).unwrap();
        assert!(!state.restore().unwrap());
    }

    #[test]
    fn files_that_are_there_are_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::of(dir.path(), DOMAIN);
        write(dir.path(), "tpm2-00.permall", "old");
        state.keep().unwrap();
        write(dir.path(), "tpm2-00.permall", "new");
        assert!(!state.restore().unwrap());
        assert_eq!(read(dir.path(), "tpm2-00.permall").unwrap(), "new");
    }

    #[test]
    fn nothing_is_kept_of_a_guest_without_a_tpm() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::of(dir.path(), DOMAIN);
        state.keep().unwrap();
        assert!(!state.restore().unwrap());
        assert!(!state.copy.exists());
        // An interrupted copy is not used.
        let unfinished = dir.path().join(format!("{DOMAIN}.copy-new/tpm2"));
        fs::create_dir_all(unfinished).unwrap();
        state.keep().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn more_than_a_tpm_has_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..=MAX_FILES {
            write(dir.path(), &format!("{number}.permall"), "");
        }
        assert!(State::of(dir.path(), DOMAIN).keep().is_err());
    }
}
