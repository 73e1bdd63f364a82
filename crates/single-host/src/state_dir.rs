//! The state directory: its paths and its lock.
//!
//! **Invariant**: only the process that holds the lock changes the directory. The kernel releases the lock when
//! the process ends, for whatever reason.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

/// The default path. Its bridge, table and cgroup have names without a suffix.
const DEFAULT: &str = "/var/lib/ferrovirt";

#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    root: PathBuf,
}

/// The lock of the directory, released when dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

/// The result of an attempt to lock.
#[derive(Debug)]
pub(crate) enum Locked {
    Ours(Lock),
    /// Another process has the lock: its process id, if known.
    Theirs(Option<i32>),
}

impl StateDir {
    /// Opens the directory, and creates it if it is missing; only root has access.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let explain = || format!("create the state directory {}", path.display());
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(explain)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
            .with_context(explain)?;
        Self::open(path)
    }

    pub(crate) fn open(path: &Path) -> Result<Self> {
        let root = path
            .canonicalize()
            .with_context(|| format!("open the state directory {}", path.display()))?;
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("ferrovirt.log")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("api.db")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(crate) fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    /// Data of persistent volumes.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.node().join("volumes")
    }

    /// Automatic copies of the database.
    pub(crate) fn copies(&self) -> PathBuf {
        self.root.join("copies")
    }

    pub(crate) fn network(&self) -> PathBuf {
        self.root.join("network")
    }

    pub(crate) fn capabilities(&self) -> PathBuf {
        self.root.join("capabilities")
    }

    /// Settings of the last `up`, for commands that come after it.
    pub(crate) fn settings(&self) -> PathBuf {
        self.root.join("settings.json")
    }

    /// Distinguishes the host objects of two state directories: empty for the default path.
    pub(crate) fn suffix(&self) -> String {
        if self.root == Path::new(DEFAULT) {
            return String::new();
        }
        let digest = Sha256::digest(self.root.as_os_str().as_encoded_bytes());
        hex::encode(&digest[..4])
    }

    /// The bridge of the pod network.
    pub(crate) fn bridge(&self) -> String {
        match self.suffix().as_str() {
            "" => "ferrovirt0".to_owned(),
            suffix => format!("fv-{suffix}"),
        }
    }

    /// The nftables table of the pod network.
    pub(crate) fn table(&self) -> String {
        match self.suffix().as_str() {
            "" => "ferrovirt".to_owned(),
            suffix => format!("ferrovirt_{suffix}"),
        }
    }

    /// The parent of all cgroups.
    pub(crate) fn cgroup(&self) -> String {
        match self.suffix().as_str() {
            "" => "/ferrovirt".to_owned(),
            suffix => format!("/ferrovirt-{suffix}"),
        }
    }

    pub(crate) fn lock(&self) -> Result<Locked> {
        let path = self.root.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                file.read_to_string(&mut text)
                    .context("read the process id in the lock")?;
                return Ok(Locked::Theirs(text.trim().parse().ok()));
            }
            Err(error) => return Err(error).context("lock the state directory"),
        }
        Ok(Locked::Ours(Lock::with_process_id(file)?))
    }
}

impl Lock {
    /// Waits for the lock; `None` after the time-out.
    pub(crate) fn wait(dir: &StateDir, limit: Duration) -> Result<Option<Self>> {
        let path = dir.root.join("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        let waiting = file.try_clone().context("wait for the lock")?;
        let (sender, receiver) = std::sync::mpsc::channel();
        // `flock` cannot be interrupted, so it blocks a thread of its own, which may outlive this call.
        std::thread::spawn(move || sender.send(flock(&waiting, FlockOperation::LockExclusive)));
        match receiver.recv_timeout(limit) {
            Ok(locked) => {
                locked.context("wait for the lock")?;
                Ok(Some(Self::with_process_id(file)?))
            }
            Err(_elapsed) => Ok(None),
        }
    }

    /// Writes our process id into the lock file.
    fn with_process_id(mut file: File) -> Result<Self> {
        file.set_len(0)
            .and_then(|()| file.rewind())
            .context("write the lock")?;
        writeln!(file, "{}", std::process::id()).context("write the lock")?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file releases the lock as well.
        let _closed_soon = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::create(dir.path()).unwrap();
        let Locked::Ours(lock) = state.lock().unwrap() else {
            panic!("the lock is free")
        };
        let Locked::Theirs(holder) = state.lock().unwrap() else {
            panic!("the lock is held")
        };
        assert_eq!(holder, i32::try_from(std::process::id()).ok());
        drop(lock);
        assert!(matches!(state.lock().unwrap(), Locked::Ours(_)));
    }

    #[test]
    fn directories_have_distinct_host_names() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, two) = (
            StateDir::open(one.path()).unwrap(),
            StateDir::open(two.path()).unwrap(),
        );
        assert_ne!(one.bridge(), two.bridge());
        assert_ne!(one.cgroup(), two.cgroup());
        assert!(one.bridge().len() <= 15);
    }
}
