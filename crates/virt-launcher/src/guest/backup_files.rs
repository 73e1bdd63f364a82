//! The files of a backup in its directory.
//!
//! **Invariant**: a directory has a manifest only if all files that it names are complete and on disk: the
//! manifest is written last, and removed first.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use launcher_channel::{BACKUP_DRAFT, BACKUP_MANIFEST, backup_file};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::backup_checksum::sha256;
use crate::settings;

/// The version of the form of a manifest.
const VERSION: u32 = 1;

/// Names of the volumes, and where their copies are.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) directory: PathBuf,
    pub(super) volumes: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    version: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    /// Whether the guest wrote its caches to disk first.
    quiesced: bool,
    volumes: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    volume: &'a str,
    file: String,
    bytes: u64,
    /// Of the whole file. A cancelled backup has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

impl Files {
    pub(super) fn path(&self, volume: &str) -> PathBuf {
        self.directory.join(backup_file(volume))
    }

    /// Makes the directory, and empties it of what an attempt has left.
    pub(super) fn prepare(&self) -> io::Result<()> {
        // Not its volume, which has to be there.
        match fs::create_dir(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.remove()
    }

    /// Removes what an attempt has left, the manifest first.
    fn remove(&self) -> io::Result<()> {
        // Others may write to the claim, and a link would lead out of it.
        if !fs::symlink_metadata(&self.directory)?.is_dir() {
            let message = "something else has the name of the backup's directory";
            return Err(io::Error::other(message));
        }
        remove(&self.directory.join(BACKUP_MANIFEST))?;
        flush_directory(&self.directory)?;
        remove(&self.directory.join(BACKUP_DRAFT))?;
        for volume in &self.volumes {
            remove(&self.path(volume))?;
        }
        Ok(())
    }

    /// The same, and the directory, where the launcher may remove it.
    pub(super) fn discard(&self) -> io::Result<()> {
        match self.remove() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::remove_dir(&self.directory) {
            Err(error)
                if !matches!(
                    error.kind(),
                    // virt-handler removes it; what others have put there stays.
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::NotFound
                        | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Brings all files to disk, and the manifest last; returns their size.
    pub(super) fn settle(
        &self,
        guest: &settings::Guest,
        quiesced: bool,
        cancel: &CancellationToken,
    ) -> io::Result<u64> {
        let mut total = 0_u64;
        let mut volumes = Vec::new();
        for volume in &self.volumes {
            let file = File::open(self.path(volume))?;
            file.sync_all()?;
            let bytes = file.metadata()?.len();
            total = total.saturating_add(bytes);
            volumes.push(Entry {
                volume,
                file: backup_file(volume),
                bytes,
                sha256: sha256(&file, cancel)?,
            });
        }
        failpoints::after("virt-launcher/backup/flush");
        let manifest = Manifest {
            version: VERSION,
            kind: "Full",
            namespace: &guest.namespace,
            name: &guest.name,
            uid: &guest.uid,
            quiesced,
            volumes,
        };
        let draft = self.directory.join(BACKUP_DRAFT);
        remove(&draft)?;
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o640)
            .open(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(&manifest)?)?;
        file.sync_all()?;
        // The names of the copies first.
        flush_directory(&self.directory)?;
        fs::rename(&draft, self.directory.join(BACKUP_MANIFEST))?;
        flush_directory(&self.directory)?;
        failpoints::after("virt-launcher/backup/manifest");
        Ok(total)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn flush_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> settings::Guest {
        settings::Guest {
            uid: "u".to_owned(),
            name: "a".to_owned(),
            namespace: "n".to_owned(),
        }
    }

    #[test]
    fn manifest_names_every_file_and_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files {
            directory: directory.path().join("b"),
            volumes: vec!["root".to_owned(), "data".to_owned()],
        };
        fs::create_dir(&files.directory).unwrap();
        fs::write(files.path("root"), "12345").unwrap();
        // A file is missing.
        let cancel = CancellationToken::new();
        assert!(files.settle(&guest(), true, &cancel).is_err());
        let manifest = files.directory.join(BACKUP_MANIFEST);
        assert!(!manifest.exists());
        fs::write(files.path("data"), "123").unwrap();
        fs::write(files.directory.join(BACKUP_DRAFT), "half").unwrap();
        assert_eq!(files.settle(&guest(), true, &cancel).unwrap(), 8);
        let read: serde_json::Value =
            serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        // Of `12345` and `123`.
        let root = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5";
        let data = "a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3";
        let expected = serde_json::json!({
            "version": 1, "type": "Full", "namespace": "n", "name": "a", "uid": "u", "quiesced": true,
            "volumes": [
                {"volume": "root", "file": "root.qcow2", "bytes": 5, "sha256": root},
                {"volume": "data", "file": "data.qcow2", "bytes": 3, "sha256": data},
            ],
        });
        assert_eq!(read, expected);
        files.discard().unwrap();
        assert!(!files.directory.exists());
        files.discard().unwrap();
    }

    #[test]
    fn link_in_place_of_the_directory_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        let files = Files {
            directory: directory.path().join("b"),
            volumes: vec!["root".to_owned()],
        };
        fs::create_dir(&other).unwrap();
        fs::write(other.join(BACKUP_MANIFEST), "1").unwrap();
        std::os::unix::fs::symlink(&other, &files.directory).unwrap();
        for refused in [files.prepare(), files.discard()] {
            let message = refused.unwrap_err().to_string();
            assert!(message.starts_with("something else"), "{message}");
        }
        assert!(other.join(BACKUP_MANIFEST).exists());
        fs::remove_file(&files.directory).unwrap();
        files.prepare().unwrap();
        assert!(files.directory.is_dir());
    }

    #[test]
    fn foreign_files_stay() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files {
            directory: directory.path().to_owned(),
            volumes: vec!["root".to_owned()],
        };
        fs::write(files.path("root"), "1").unwrap();
        fs::write(directory.path().join("mine"), "1").unwrap();
        files.remove().unwrap();
        assert!(!files.path("root").exists());
        assert!(directory.path().join("mine").exists());
    }
}
