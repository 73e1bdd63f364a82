//! The manifest of a backup, and the chain of backups that an increment builds on.
//!
//! **Invariant**: manifests are read without following a link, since others may write to the claim, and no more of
//! them than a chain may have.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use container_disk::beneath;
use launcher_channel::{BACKUP_MANIFEST, MAX_INCREMENTS, is_plain_name};
use rustix::fs::{AtFlags, statat};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The version of the form of a manifest.
pub(super) const VERSION: u32 = 1;
/// The longest manifest that is read: of a thousand disks.
const MAX_LENGTH: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// The files have all blocks.
    Full,
    /// The files have the blocks that changed since the backup in the directory `parent`.
    Incremental,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) version: u32,
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    /// The name by which a later backup builds on this one: that of the directory.
    pub(super) checkpoint: Option<String>,
    /// The directory, in the same claim, of the backup that this one builds on.
    pub(super) parent: Option<String>,
    /// Of the parent's manifest: another backup may get the name of its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent_sha256: Option<String>,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Of the VMI: a restarted guest has another one.
    pub(super) uid: String,
    /// Whether the guest wrote its caches to disk first.
    pub(super) quiesced: bool,
    pub(super) volumes: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) volume: String,
    pub(super) file: String,
    /// Of the file.
    pub(super) bytes: u64,
    /// Of the disk. Launchers of earlier versions wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) capacity: Option<u64>,
    /// Of the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

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
    pub(super) manifest: Manifest,
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
    let mut increments = 1 + usize::from(next.kind == Kind::Incremental);
    let mut directory = parent.to_owned();
    while let Some(parent) = next.parent {
        let found = read(claim, &parent, guest_uid)?;
        if next.parent_sha256.is_some_and(|sum| sum != found.sha256) {
            return Err(ChainError::Replaced { parent, directory });
        }
        increments += usize::from(found.manifest.kind == Kind::Incremental);
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
        File::from(file).take(MAX_LENGTH).read_to_end(&mut bytes)?;
        let manifest: Manifest = serde_json::from_slice(&bytes)?;
        Ok((directory, manifest, hex::encode(Sha256::digest(&bytes))))
    };
    let (held, manifest, sha256) = read().map_err(missing)?;
    let is_incremental = manifest.kind == Kind::Incremental;
    if manifest.version != VERSION || is_incremental != manifest.parent.is_some() {
        return Err(missing(io::ErrorKind::InvalidData.into()));
    }
    if manifest.uid != guest_uid {
        return Err(ChainError::Foreign(directory.to_owned()));
    }
    if manifest.checkpoint.as_deref() != Some(directory) {
        return Err(ChainError::NoCheckpoint(directory.to_owned()));
    }
    for entry in &manifest.volumes {
        let found = statat(&held, entry.file.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        let bytes = is_plain_name(&entry.file).then_some(found);
        let is_whole =
            matches!(bytes, Some(Ok(stat)) if u64::try_from(stat.st_size) == Ok(entry.bytes));
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

    use super::*;

    fn manifest(directory: &str, parent: Option<&str>) -> Manifest {
        Manifest {
            version: VERSION,
            kind: if parent.is_some() {
                Kind::Incremental
            } else {
                Kind::Full
            },
            checkpoint: Some(directory.to_owned()),
            parent: parent.map(str::to_owned),
            parent_sha256: None,
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            uid: "u".to_owned(),
            quiesced: false,
            volumes: vec![Entry {
                volume: "root".to_owned(),
                file: "root.qcow2".to_owned(),
                bytes: 3,
                capacity: Some(512),
                sha256: None,
            }],
        }
    }

    fn write(claim: &Path, directory: &str, manifest: &Manifest) {
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
        let unmarked = |directory, parent| Manifest {
            checkpoint: None,
            ..manifest(directory, parent)
        };
        write(claim, "one", &unmarked("one", Some("full")));
        assert_eq!(refused(claim, "two"), "backup one left no checkpoint");
        let earlier = Manifest {
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
        let child = Manifest {
            parent_sha256: Some(full.sha256),
            ..manifest("one", Some("full"))
        };
        assert_eq!(
            serde_json::to_value(&child).unwrap()["parentSha256"].as_str(),
            child.parent_sha256.as_deref()
        );
        write(claim, "one", &child);
        read_chain(claim, "one", "u").unwrap();
        let again = Manifest {
            quiesced: true,
            ..manifest("full", None)
        };
        write(claim, "full", &again);
        assert_eq!(
            refused(claim, "one"),
            "backup.json of backup full is not the one that backup one builds on"
        );
    }

    /// Manifests of earlier versions.
    #[test]
    fn capacity_sum_and_digest_may_be_missing() {
        let mut value = serde_json::to_value(manifest("one", Some("full"))).unwrap();
        value["volumes"][0]
            .as_object_mut()
            .unwrap()
            .remove("capacity");
        let read: Manifest = serde_json::from_value(value).unwrap();
        let entry = &read.volumes[0];
        let missing = (&entry.capacity, &entry.sha256, &read.parent_sha256);
        assert_eq!(missing, (&None, &None, &None));
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
