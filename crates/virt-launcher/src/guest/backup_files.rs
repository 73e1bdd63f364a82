//! The files of a backup in its directory.
//!
//! **Invariant**: a directory has a manifest only if all files that it names are complete and on disk: the
//! manifest is written last, and removed first.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use disk_image::{Format, probe_file};
use launcher_channel::{BACKUP_DRAFT, BACKUP_MANIFEST, Lineage, backup_file};
use tokio_util::sync::CancellationToken;

use super::backup_checksum::sha256;
use super::backup_manifest::{Entry, Kind, Manifest, VERSION};
use crate::settings;

/// Names of the volumes, and where their copies are.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) directory: PathBuf,
    pub(super) volumes: Vec<String>,
}

/// What the manifest says about a copy that is complete.
#[derive(Debug, Clone, Default)]
pub(super) struct Made {
    pub(super) quiesced: bool,
    pub(super) lineage: Lineage,
}

impl Files {
    /// The name of the directory.
    pub(super) fn name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

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

    /// Brings all files to disk, and the manifest last; returns their size, or `None` if the backup was cancelled.
    pub(super) fn settle(
        &self,
        guest: &settings::Guest,
        made: &Made,
        cancel: &CancellationToken,
    ) -> io::Result<Option<u64>> {
        let mut total = 0_u64;
        let mut volumes = Vec::new();
        for volume in &self.volumes {
            let file = File::open(self.path(volume))?;
            file.sync_all()?;
            let bytes = file.metadata()?.len();
            total = total.saturating_add(bytes);
            let image = probe_file(&file).map_err(io::Error::other)?;
            if image.format != Format::Qcow2 {
                let message = format!("the copy of {volume} is not a qcow2 image");
                return Err(io::Error::other(message));
            }
            let Some(sum) = sha256(&file, cancel)? else {
                return Ok(None);
            };
            volumes.push(Entry {
                volume: volume.clone(),
                file: backup_file(volume),
                bytes,
                capacity: image.virtual_size,
                sha256: Some(sum),
            });
        }
        failpoints::after("virt-launcher/backup/flush");
        let manifest = Manifest {
            version: VERSION,
            kind: match made.lineage.parent {
                Some(_) => Kind::Incremental,
                None => Kind::Full,
            },
            checkpoint: made.lineage.has_checkpoint.then(|| self.name()),
            parent: made.lineage.parent.clone(),
            namespace: guest.namespace.clone(),
            name: guest.name.clone(),
            uid: guest.uid.clone(),
            quiesced: made.quiesced,
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
        Ok(Some(total))
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
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn guest() -> settings::Guest {
        settings::Guest {
            uid: "u".to_owned(),
            name: "a".to_owned(),
            namespace: "n".to_owned(),
        }
    }

    /// A copy of a disk of one MiB.
    fn copy(files: &Files, volume: &str) {
        let image = disk_image::Blueprint::empty(1 << 20).unwrap();
        disk_image::write_new(&files.path(volume), &image).unwrap();
    }

    #[test]
    fn manifest_names_every_file_and_goes_first() {
        let mut made = Made {
            quiesced: true,
            ..Made::default()
        };
        let directory = tempfile::tempdir().unwrap();
        let files = Files {
            directory: directory.path().join("b"),
            volumes: vec!["root".to_owned(), "data".to_owned()],
        };
        fs::create_dir(&files.directory).unwrap();
        copy(&files, "root");
        // A file is missing.
        let cancel = CancellationToken::new();
        assert!(files.settle(&guest(), &made, &cancel).is_err());
        let manifest = files.directory.join(BACKUP_MANIFEST);
        assert!(!manifest.exists());
        fs::write(files.path("data"), "123").unwrap();
        assert!(files.settle(&guest(), &made, &cancel).is_err());
        assert!(!manifest.exists());
        fs::remove_file(files.path("data")).unwrap();
        copy(&files, "data");
        let bytes = fs::metadata(files.path("root")).unwrap().len();
        fs::write(files.directory.join(BACKUP_DRAFT), "half").unwrap();
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert_eq!(files.settle(&guest(), &made, &cancelled).unwrap(), None);
        assert!(!manifest.exists());
        let total = files.settle(&guest(), &made, &cancel).unwrap();
        assert_eq!(total, Some(2 * bytes));
        let read: serde_json::Value =
            serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        let sum = hex::encode(Sha256::digest(fs::read(files.path("root")).unwrap()));
        let expected = serde_json::json!({
            "version": 1, "type": "Full", "checkpoint": null, "parent": null,
            "namespace": "n", "name": "a", "uid": "u", "quiesced": true,
            "volumes": [
                {"volume": "root", "file": "root.qcow2", "bytes": bytes, "capacity": 1_048_576, "sha256": sum},
                {"volume": "data", "file": "data.qcow2", "bytes": bytes, "capacity": 1_048_576, "sha256": sum},
            ],
        });
        assert_eq!(read, expected);
        made.lineage = Lineage {
            parent: Some("earlier".to_owned()),
            has_checkpoint: true,
            note: None,
        };
        files.settle(&guest(), &made, &cancel).unwrap();
        let read: serde_json::Value =
            serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        let found = (&read["type"], &read["checkpoint"], &read["parent"]);
        let [kind, checkpoint, parent] =
            ["Incremental", "b", "earlier"].map(|one| serde_json::json!(one));
        assert_eq!(found, (&kind, &checkpoint, &parent));
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
