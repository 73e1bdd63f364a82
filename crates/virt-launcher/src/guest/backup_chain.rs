//! The chain of backups that an increment builds on.
//!
//! **Invariant**: manifests are read without following a link, since others may write to the claim, and no more of
//! them than a chain may have.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use container_disk::beneath;
use launcher_channel::{
    BACKUP_MANIFEST, BackupKind, BackupManifest, MAX_BACKUP_MANIFEST, MAX_INCREMENTS, is_plain_name,
};
use rustix::fs::{AtFlags, statat};
use sha2::{Digest as _, Sha256};

/// Why nothing can build on a backup; a phrase that follows its name.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChainError {
    #[error("backup {directory} is not complete in this claim")]
    Missing {
        directory: String,
        #[source]
        source: io::Error,
    },
    #[error("{file} of backup {directory} is missing or has another size")]
    File { directory: String, file: String },
    #[error("backup {0} is of another guest, or of an earlier start of this one")]
    Foreign(String),
    #[error("backup {0} left no checkpoint")]
    NoCheckpoint(String),
    #[error(
        "{BACKUP_MANIFEST} of backup {parent} is not the one that backup {directory} builds on"
    )]
    Replaced { parent: String, directory: String },
    #[error("{MAX_INCREMENTS} increments build on the last full backup, which is the limit")]
    Long,
}

/// A backup that an increment can build on.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) manifest: BackupManifest,
    /// Of its manifest.
    pub(super) sha256: String,
}

/// The parent, if it and all that it builds on are complete and of this guest.
pub(super) fn read_chain(
    claim: &Path,
    parent: &str,
    guest_uid: &str,
) -> Result<Parent, ChainError> {
    let first = read(claim, parent, guest_uid)?;
    let mut next = first.manifest.clone();
    // The increment to be made, and the parent.
    let mut increments = 1 + usize::from(next.kind == BackupKind::Incremental);
    let mut directory = parent.to_owned();
    while let Some(parent) = next.parent {
        let found = read(claim, &parent, guest_uid)?;
        if next.parent_sha256.is_some_and(|sum| sum != found.sha256) {
            return Err(ChainError::Replaced { parent, directory });
        }
        increments += usize::from(found.manifest.kind == BackupKind::Incremental);
        if increments > MAX_INCREMENTS {
            return Err(ChainError::Long);
        }
        directory = parent;
        next = found.manifest;
    }
    Ok(first)
}

fn read(claim: &Path, directory: &str, guest_uid: &str) -> Result<Parent, ChainError> {
    let missing = |source| ChainError::Missing {
        directory: directory.to_owned(),
        source,
    };
    let read = || {
        if !is_plain_name(directory) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let claim = beneath::directory(claim)?;
        let directory = beneath::own_directory(&claim, directory.as_ref())?;
        let file = beneath::read_own(&directory, BACKUP_MANIFEST.as_ref())?;
        let mut bytes = Vec::new();
        // One byte more, so that a longer one is refused.
        let mut limited = File::from(file).take(MAX_BACKUP_MANIFEST + 1);
        limited.read_to_end(&mut bytes)?;
        let manifest = BackupManifest::parse(&bytes).map_err(io::Error::other)?;
        Ok((directory, manifest, hex::encode(Sha256::digest(&bytes))))
    };
    let (held, manifest, sha256) = read().map_err(missing)?;
    if manifest.uid != guest_uid {
        return Err(ChainError::Foreign(directory.to_owned()));
    }
    if manifest.checkpoint.as_deref() != Some(directory) {
        return Err(ChainError::NoCheckpoint(directory.to_owned()));
    }
    for entry in &manifest.volumes {
        let found = statat(&held, entry.file.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        let is_whole = found.is_ok_and(|stat| u64::try_from(stat.st_size) == Ok(entry.bytes));
        if !is_whole {
            return Err(ChainError::File {
                directory: directory.to_owned(),
                file: entry.file.clone(),
            });
        }
    }
    Ok(Parent { manifest, sha256 })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use launcher_channel::BackedUpVolume;

    use super::*;

    fn manifest(directory: &str, parent: Option<&str>) -> BackupManifest {
        BackupManifest {
            version: BackupManifest::VERSION,
            kind: if parent.is_some() {
                BackupKind::Incremental
            } else {
                BackupKind::Full
            },
            checkpoint: Some(directory.to_owned()),
            parent: parent.map(str::to_owned),
            parent_sha256: None,
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            uid: "u".to_owned(),
            quiesced: false,
            volumes: vec![BackedUpVolume {
                volume: "root".to_owned(),
                file: "root.qcow2".to_owned(),
                bytes: 3,
                capacity: Some(512),
                sha256: None,
            }],
        }
    }

    fn write(claim: &Path, directory: &str, manifest: &BackupManifest) {
        let directory = claim.join(directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("root.qcow2"), "123").unwrap();
        let bytes = serde_json::to_vec(manifest).unwrap();
        fs::write(directory.join(BACKUP_MANIFEST), bytes).unwrap();
    }

    fn refused(claim: &Path, parent: &str) -> String {
        read_chain(claim, parent, "u").unwrap_err().to_string()
    }

    #[test]
    fn chain_is_complete_and_of_one_guest() {
        let claim = tempfile::tempdir().unwrap();
        let claim = claim.path();
        write(claim, "full", &manifest("full", None));
        write(claim, "one", &manifest("one", Some("full")));
        write(claim, "two", &manifest("two", Some("one")));
        assert_eq!(
            read_chain(claim, "two", "u").unwrap().manifest,
            manifest("two", Some("one"))
        );
        let other = read_chain(claim, "two", "v").unwrap_err().to_string();
        assert!(
            other.starts_with("backup two is of another guest"),
            "{other}"
        );
        // In the middle of the chain.
        let unmarked = |directory, parent| BackupManifest {
            checkpoint: None,
            ..manifest(directory, parent)
        };
        write(claim, "one", &unmarked("one", Some("full")));
        assert_eq!(refused(claim, "two"), "backup one left no checkpoint");
        let earlier = BackupManifest {
            uid: "v".to_owned(),
            ..manifest("full", None)
        };
        write(claim, "one", &manifest("one", Some("full")));
        write(claim, "full", &earlier);
        let foreign = refused(claim, "two");
        assert!(
            foreign.starts_with("backup full is of another"),
            "{foreign}"
        );
        write(claim, "full", &manifest("full", None));
        fs::write(claim.join("one/root.qcow2"), "1").unwrap();
        let cut = refused(claim, "two");
        assert!(
            cut.starts_with("root.qcow2 of backup one is missing"),
            "{cut}"
        );
        fs::remove_file(claim.join("one/backup.json")).unwrap();
        let missing = refused(claim, "two");
        assert!(
            missing.starts_with("backup one is not complete"),
            "{missing}"
        );
        write(claim, "bare", &unmarked("bare", None));
        assert_eq!(refused(claim, "bare"), "backup bare left no checkpoint");
        // It was moved.
        write(claim, "moved", &manifest("full", None));
        assert_eq!(refused(claim, "moved"), "backup moved left no checkpoint");
    }

    /// A backup that was made again in the same directory holds other blocks.
    #[test]
    fn parent_is_the_very_one_that_was_built_on() {
        let claim = tempfile::tempdir().unwrap();
        let claim = claim.path();
        write(claim, "full", &manifest("full", None));
        let full = read_chain(claim, "full", "u").unwrap();
        let bytes = fs::read(claim.join("full").join(BACKUP_MANIFEST)).unwrap();
        assert_eq!(full.sha256, hex::encode(Sha256::digest(&bytes)));
        let child = BackupManifest {
            parent_sha256: Some(full.sha256),
            ..manifest("one", Some("full"))
        };
        assert_eq!(
            serde_json::to_value(&child).unwrap()["parentSha256"].as_str(),
            child.parent_sha256.as_deref()
        );
        write(claim, "one", &child);
        read_chain(claim, "one", "u").unwrap();
        let again = BackupManifest {
            quiesced: true,
            ..manifest("full", None)
        };
        write(claim, "full", &again);
        assert_eq!(
            refused(claim, "one"),
            "backup.json of backup full is not the one that backup one builds on"
        );
    }

    #[test]
    fn chain_has_a_limit_and_no_link() {
        let claim = tempfile::tempdir().unwrap();
        let claim = claim.path();
        write(claim, "circle", &manifest("circle", Some("circle")));
        assert_eq!(refused(claim, "circle"), ChainError::Long.to_string());
        write(claim, "0", &manifest("0", None));
        for number in 1..MAX_INCREMENTS {
            let parent = (number - 1).to_string();
            let name = number.to_string();
            write(claim, &name, &manifest(&name, Some(&parent)));
        }
        // The next one is the last.
        let last = (MAX_INCREMENTS - 1).to_string();
        read_chain(claim, &last, "u").unwrap();
        let name = MAX_INCREMENTS.to_string();
        write(claim, &name, &manifest(&name, Some(&last)));
        assert_eq!(refused(claim, &name), ChainError::Long.to_string());

        std::os::unix::fs::symlink("0", claim.join("link")).unwrap();
        for path in ["link", "../0", ".", ""] {
            let refused = refused(claim, path);
            assert!(refused.contains("is not complete"), "{path}: {refused}");
        }
        let pipe = claim.join("pipe");
        fs::create_dir(&pipe).unwrap();
        std::os::unix::fs::symlink("../0/backup.json", pipe.join(BACKUP_MANIFEST)).unwrap();
        assert!(refused(claim, "pipe").contains("is not complete"));
    }
}
