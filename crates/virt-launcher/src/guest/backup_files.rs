//! The files of a backup in its directory.
//!
//! **Invariants**: a directory has a manifest only if all files that it names are complete and on disk: the
//! manifest is written last, and removed first. Others may write to the claim: all names are looked up in the
//! open directory, no link is followed, and nothing but a regular file is read.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use container_disk::beneath;
use disk_image::{Blueprint, Format, probe_file, write_to};
use launcher_channel::{
    BACKUP_DRAFT, BACKUP_MANIFEST, BACKUP_SOCKET, BackedUpVolume, BackupKind, BackupManifest,
    Lineage, backup_file,
};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::backup_checksum::sha256;
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
    /// Of the manifest of the parent.
    pub(super) parent_sha256: Option<String>,
}

impl Files {
    /// The name of the directory.
    pub(super) fn name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The directory of the claim.
    pub(super) fn claim(&self) -> &Path {
        self.directory.parent().unwrap_or(Path::new("/"))
    }

    pub(super) fn path(&self, volume: &str) -> PathBuf {
        self.directory.join(backup_file(volume))
    }

    /// Makes the directory, and empties it of what an attempt has left; returns it.
    pub(super) fn prepare(&self) -> io::Result<File> {
        let claim = beneath::directory(self.claim())?;
        // Not its volume, which has to be there.
        match mkdirat(&claim, self.name(), Mode::from_raw_mode(0o777)) {
            Err(error) if error != Errno::EXIST => return Err(error.into()),
            _ => {}
        }
        let directory = self.open(&claim)?;
        self.remove(&directory)?;
        Ok(directory)
    }

    fn open(&self, claim: &File) -> io::Result<File> {
        match beneath::own_directory(claim, Path::new(&self.name())) {
            Ok(directory) => Ok(directory.into()),
            Err(error) if is_foreign(&error) => {
                let message = "something else has the name of the backup's directory";
                Err(io::Error::other(message))
            }
            Err(error) => Err(error),
        }
    }

    /// Removes what an attempt has left, the manifest first.
    fn remove(&self, directory: &File) -> io::Result<()> {
        remove(directory, BACKUP_MANIFEST)?;
        directory.sync_all()?;
        remove(directory, BACKUP_DRAFT)?;
        remove(directory, BACKUP_SOCKET)?;
        for volume in &self.volumes {
            remove(directory, &backup_file(volume))?;
        }
        Ok(())
    }

    /// The same, and the directory, where the launcher may remove it.
    pub(super) fn discard(&self) -> io::Result<()> {
        let discard = || {
            let claim = beneath::directory(self.claim())?;
            self.remove(&self.open(&claim)?)?;
            match unlinkat(&claim, self.name(), AtFlags::REMOVEDIR) {
                // virt-handler removes it; what others have put there stays.
                Ok(()) | Err(Errno::ACCESS | Errno::PERM | Errno::NOTEMPTY | Errno::EXIST) => {
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        };
        match discard() {
            Err(error) if is_missing(&error) => Ok(()),
            done => done,
        }
    }

    /// Brings all files to disk, and the manifest last; returns their size, or `None` if the backup was cancelled.
    /// `directory` is the one that was prepared.
    pub(super) fn settle(
        &self,
        directory: &File,
        guest: &settings::Guest,
        made: &Made,
        cancel: &CancellationToken,
    ) -> io::Result<Option<u64>> {
        let mut total = 0_u64;
        let mut volumes = Vec::new();
        for volume in &self.volumes {
            let Some(entry) = settle_copy(directory, volume, cancel)? else {
                return Ok(None);
            };
            total = total.saturating_add(entry.bytes);
            volumes.push(entry);
        }
        failpoints::after("virt-launcher/backup/flush");
        let manifest = BackupManifest {
            version: BackupManifest::VERSION,
            kind: match made.lineage.parent {
                Some(_) => BackupKind::Incremental,
                None => BackupKind::Full,
            },
            checkpoint: made.lineage.has_checkpoint.then(|| self.name()),
            parent: made.lineage.parent.clone(),
            parent_sha256: made.parent_sha256.clone(),
            namespace: guest.namespace.clone(),
            name: guest.name.clone(),
            uid: guest.uid.clone(),
            quiesced: made.quiesced,
            volumes,
        };
        remove(directory, BACKUP_DRAFT)?;
        let mut file = create(directory, BACKUP_DRAFT)?;
        file.write_all(&serde_json::to_vec_pretty(&manifest)?)?;
        file.sync_all()?;
        // The names of the copies first.
        directory.sync_all()?;
        renameat(directory, BACKUP_DRAFT, directory, BACKUP_MANIFEST)?;
        directory.sync_all()?;
        failpoints::after("virt-launcher/backup/manifest");
        Ok(Some(total))
    }
}

/// What the manifest says about a copy, once it is on disk; `None` if the backup was cancelled.
fn settle_copy(
    directory: &File,
    volume: &str,
    cancel: &CancellationToken,
) -> io::Result<Option<BackedUpVolume>> {
    let name = backup_file(volume);
    let wrong = |what: &str| io::Error::other(format!("the copy of {volume} is {what}"));
    let file = match beneath::read_own(directory, Path::new(&name)) {
        Ok(file) => File::from(file),
        Err(error) if is_foreign(&error) => return Err(wrong("a link or a mount")),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(wrong("no regular file"));
    }
    file.sync_all()?;
    let image = probe_file(&file).map_err(io::Error::other)?;
    if image.format != Format::Qcow2 {
        return Err(wrong("no qcow2 image"));
    }
    let sum = sha256(&file, cancel)?;
    Ok(sum.map(|sum| BackedUpVolume {
        volume: volume.to_owned(),
        file: name,
        bytes: metadata.len(),
        capacity: Some(image.virtual_size),
        sha256: Some(sum),
    }))
}

/// Creates the copy of a disk, without content.
pub(super) fn create_copy(
    directory: &File,
    volume: &str,
    blueprint: &Blueprint,
) -> io::Result<File> {
    let file = create(directory, &backup_file(volume))?;
    write_to(&file, blueprint).map_err(io::Error::other)?;
    Ok(file)
}

/// Whether the name of the copy still is that of the file.
pub(super) fn is_copy(directory: &File, volume: &str, file: &File) -> io::Result<bool> {
    let known = fstat(file)?;
    match statat(directory, backup_file(volume), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok((found.st_dev, found.st_ino) == (known.st_dev, known.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Creates a file of the directory; a name that exists is an error.
fn create(directory: &File, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::from_raw_mode(0o640))?.into())
}

fn remove(directory: &File, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(error) if error != Errno::NOENT => Err(error.into()),
        _ => Ok(()),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Whether the name is that of something that is not opened: a link, a mount, or no directory.
fn is_foreign(error: &io::Error) -> bool {
    let code = Errno::from_io_error(error);
    matches!(code, Some(Errno::LOOP | Errno::NOTDIR | Errno::XDEV))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let image = Blueprint::empty(1 << 20).unwrap();
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
        let held = files.prepare().unwrap();
        let settle =
            |made: &Made, cancel: &CancellationToken| files.settle(&held, &guest(), made, cancel);
        copy(&files, "root");
        // A file is missing.
        let cancel = CancellationToken::new();
        assert!(settle(&made, &cancel).is_err());
        let manifest = files.directory.join(BACKUP_MANIFEST);
        assert!(!manifest.exists());
        fs::write(files.path("data"), "123").unwrap();
        assert!(settle(&made, &cancel).is_err());
        assert!(!manifest.exists());
        fs::remove_file(files.path("data")).unwrap();
        copy(&files, "data");
        let bytes = fs::metadata(files.path("root")).unwrap().len();
        fs::write(files.directory.join(BACKUP_DRAFT), "half").unwrap();
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert_eq!(settle(&made, &cancelled).unwrap(), None);
        assert!(!manifest.exists());
        let total = settle(&made, &cancel).unwrap();
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
        made.parent_sha256 = Some("0a".to_owned());
        settle(&made, &cancel).unwrap();
        let read: serde_json::Value =
            serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        let found = ["type", "checkpoint", "parent", "parentSha256"].map(|one| read[one].as_str());
        assert_eq!(found, ["Incremental", "b", "earlier", "0a"].map(Some));
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
        for refused in [files.prepare().map(drop), files.discard()] {
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
        files.prepare().unwrap();
        assert!(!files.path("root").exists());
        assert!(directory.path().join("mine").exists());
    }

    /// Others may write to the claim.
    #[test]
    fn only_regular_files_of_the_prepared_directory_are_read() {
        let claim = tempfile::tempdir().unwrap();
        let files = Files {
            directory: claim.path().join("b"),
            volumes: vec!["root".to_owned()],
        };
        let held = files.prepare().unwrap();
        let cancel = CancellationToken::new();
        let settle = || files.settle(&held, &guest(), &Made::default(), &cancel);
        let refused = |expected: &str| {
            let message = settle().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            fs::remove_file(files.path("root")).unwrap();
        };
        std::os::unix::fs::symlink("/etc/passwd", files.path("root")).unwrap();
        refused("the copy of root is a link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            files.path("root"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        refused("the copy of root is no regular file");
        // Another directory in its place gets no manifest.
        copy(&files, "root");
        fs::rename(&files.directory, claim.path().join("moved")).unwrap();
        fs::create_dir(&files.directory).unwrap();
        settle().unwrap();
        assert!(claim.path().join("moved").join(BACKUP_MANIFEST).exists());
        assert!(!files.directory.join(BACKUP_MANIFEST).exists());
    }

    #[test]
    fn copy_of_an_increment_is_a_new_file_that_keeps_its_name() {
        let claim = tempfile::tempdir().unwrap();
        let files = Files {
            directory: claim.path().join("b"),
            volumes: vec!["root".to_owned()],
        };
        let held = files.prepare().unwrap();
        let blueprint = Blueprint::empty(1 << 20).unwrap();
        std::os::unix::fs::symlink("other", files.path("root")).unwrap();
        assert!(create_copy(&held, "root", &blueprint).is_err());
        assert!(!files.directory.join("other").exists());
        fs::remove_file(files.path("root")).unwrap();
        let file = create_copy(&held, "root", &blueprint).unwrap();
        assert_eq!(
            probe_file(&File::open(files.path("root")).unwrap())
                .unwrap()
                .virtual_size,
            1 << 20
        );
        assert!(is_copy(&held, "root", &file).unwrap());
        fs::rename(files.path("root"), files.path("moved")).unwrap();
        assert!(!is_copy(&held, "root", &file).unwrap());
        std::os::unix::fs::symlink("moved.qcow2", files.path("root")).unwrap();
        assert!(!is_copy(&held, "root", &file).unwrap());
    }
}
