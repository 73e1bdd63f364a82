//! `backup.json`: what a backup holds, and what it builds on. Pure.
//!
//! **Invariant**: [`BackupManifest::parse`] accepts only what a launcher may have written. Anyone with access to the claim
//! can change the file.

use serde::{Deserialize, Serialize};

use crate::is_plain_name;

/// The longest manifest that is read.
pub const MAX_BACKUP_MANIFEST: u64 = 1 << 20;
/// Of a volume of a VM.
const MAX_VOLUME_NAME: usize = 63;
const MAX_VOLUMES: usize = 512;
/// Hexadecimal digits of a sum.
const SUM_DIGITS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupKind {
    /// The files have all blocks.
    Full,
    /// The files have the blocks that changed since the backup in the directory `parent`.
    Incremental,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupManifest {
    pub version: u32,
    #[serde(rename = "type")]
    pub kind: BackupKind,
    /// The name by which a later backup builds on this one: that of the directory.
    #[serde(default)]
    pub checkpoint: Option<String>,
    /// The directory, in the same claim, of the backup that this one builds on.
    #[serde(default)]
    pub parent: Option<String>,
    /// Of the parent's manifest: another backup may get the name of its directory. Launchers of earlier versions wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_sha256: Option<String>,
    pub namespace: String,
    pub name: String,
    /// Of the VMI: a restarted guest has another one, on which no backup of it builds.
    pub uid: String,
    /// Whether the guest wrote its caches to disk first.
    #[serde(default)]
    pub quiesced: bool,
    pub volumes: Vec<BackedUpVolume>,
}

/// The copy of one volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackedUpVolume {
    pub volume: String,
    pub file: String,
    /// Of the file.
    pub bytes: u64,
    /// Of the disk. Launchers of earlier versions wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// Of the whole file, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Why it is no manifest of a backup.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("it has more than {MAX_BACKUP_MANIFEST} bytes")]
    Long,
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    #[error("its version is {0}, and this program knows {version}", version = BackupManifest::VERSION)]
    Version(u32),
    #[error("a full backup has no parent")]
    FullWithParent,
    #[error("an incremental backup needs a parent")]
    NoParent,
    #[error("its parent {0:?} is no name of a directory")]
    Parent(String),
    #[error("its parentSha256 has not {SUM_DIGITS} hexadecimal digits")]
    ParentSum,
    #[error("it has more than {MAX_VOLUMES} volumes")]
    ManyVolumes,
    #[error("{0:?} is no name of a volume")]
    Volume(String),
    #[error("{0:?} is no name of a file")]
    File(String),
    #[error("the sha256 of file {0} has not {SUM_DIGITS} hexadecimal digits")]
    Sum(String),
    #[error("it has volume {0} or its file twice")]
    Twice(String),
}

impl BackupManifest {
    /// The version of its form.
    pub const VERSION: u32 = 1;

    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        if bytes.len() as u64 > MAX_BACKUP_MANIFEST {
            return Err(ManifestError::Long);
        }
        let head: Head = serde_json::from_slice(bytes)?;
        if head.version != Self::VERSION {
            return Err(ManifestError::Version(head.version));
        }
        let found: Self = serde_json::from_slice(bytes)?;
        match (found.kind, &found.parent) {
            (BackupKind::Full, Some(_)) => return Err(ManifestError::FullWithParent),
            (BackupKind::Incremental, None) => return Err(ManifestError::NoParent),
            (BackupKind::Incremental, Some(parent)) if !is_plain_name(parent) => {
                return Err(ManifestError::Parent(parent.clone()));
            }
            _ => {}
        }
        if found.parent_sha256.as_ref().is_some_and(|sum| !is_sum(sum)) {
            return Err(ManifestError::ParentSum);
        }
        if found.volumes.len() > MAX_VOLUMES {
            return Err(ManifestError::ManyVolumes);
        }
        for (at, entry) in found.volumes.iter().enumerate() {
            entry.check()?;
            let mut before = found.volumes.iter().take(at);
            if before.any(|one| one.volume == entry.volume || one.file == entry.file) {
                return Err(ManifestError::Twice(entry.volume.clone()));
            }
        }
        Ok(found)
    }

    pub fn volume(&self, name: &str) -> Option<&BackedUpVolume> {
        self.volumes.iter().find(|one| one.volume == name)
    }

    /// Whether both are of one start of one guest.
    pub fn is_of_same_guest(&self, other: &Self) -> bool {
        self.guest() == other.guest()
    }

    fn guest(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.name, &self.uid)
    }
}

impl BackedUpVolume {
    fn check(&self) -> Result<(), ManifestError> {
        if !is_plain_name(&self.volume) || self.volume.len() > MAX_VOLUME_NAME {
            return Err(ManifestError::Volume(self.volume.clone()));
        }
        if !is_plain_name(&self.file) {
            return Err(ManifestError::File(self.file.clone()));
        }
        if self.sha256.as_ref().is_some_and(|sum| !is_sum(sum)) {
            return Err(ManifestError::Sum(self.file.clone()));
        }
        Ok(())
    }
}

fn is_sum(text: &str) -> bool {
    text.len() == SUM_DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest() -> Value {
        json!({
            "version": 1, "type": "Incremental", "checkpoint": "b", "parent": "a", "parentSha256": "0".repeat(64),
            "namespace": "n", "name": "vm", "uid": "u", "quiesced": true,
            "volumes": [{
                "volume": "root", "file": "root.qcow2", "bytes": 3, "capacity": 512, "sha256": "f".repeat(64),
            }],
        })
    }

    #[test]
    fn manifest_is_read_as_it_was_written() {
        let text = manifest().to_string();
        let read = BackupManifest::parse(text.as_bytes()).unwrap();
        assert_eq!(json!(read), manifest());
        assert_eq!(read.volume("root"), read.volumes.first());
        assert_eq!(read.volume("data"), None);
    }

    /// Of earlier versions, and of files that people have converted.
    #[test]
    fn sums_capacity_and_more_may_be_missing() {
        let mut bare = manifest();
        for member in ["checkpoint", "parentSha256", "quiesced"] {
            bare.as_object_mut().unwrap().remove(member);
        }
        for member in ["capacity", "sha256"] {
            bare["volumes"][0].as_object_mut().unwrap().remove(member);
        }
        let read = BackupManifest::parse(bare.to_string().as_bytes()).unwrap();
        let entry = &read.volumes[0];
        let sums = (&entry.sha256, &read.parent_sha256);
        assert_eq!(sums, (&None, &None));
        assert_eq!((entry.capacity, read.quiesced), (None, false));
        assert!(!json!(read).to_string().contains("sha256"));
    }

    #[test]
    fn what_no_launcher_writes_is_refused() {
        let long = "v".repeat(64);
        let twice = json!([
            {"volume": "a", "file": "a", "bytes": 1}, {"volume": "b", "file": "a", "bytes": 1},
        ]);
        let one =
            |at: usize| json!({"volume": format!("v{at}"), "file": format!("f{at}"), "bytes": 1});
        let many: Vec<Value> = (0..=MAX_VOLUMES).map(one).collect();
        for (path, value, expected) in [
            (
                "/version",
                json!(2),
                "its version is 2, and this program knows 1",
            ),
            ("/type", json!("Full"), "a full backup has no parent"),
            ("/type", json!("Other"), "unknown variant"),
            ("/parent", json!(null), "needs a parent"),
            ("/parent", json!("../a"), "is no name of a directory"),
            ("/parentSha256", json!("0"), "parentSha256 has not 64"),
            ("/uid", json!(null), "invalid type"),
            ("/volumes", json!(many), "more than 512 volumes"),
            ("/volumes", twice, "volume b or its file twice"),
            ("/volumes/0/volume", json!(long), "is no name of a volume"),
            ("/volumes/0/file", json!("a/b"), "is no name of a file"),
            (
                "/volumes/0/sha256",
                json!("x".repeat(64)),
                "the sha256 of file root.qcow2",
            ),
        ] {
            let mut changed = manifest();
            *changed.pointer_mut(path).unwrap() = value;
            let error = BackupManifest::parse(changed.to_string().as_bytes());
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expected), "{path}: {error}");
        }
        let spaces = " ".repeat((1 << 20) + 1);
        let error = BackupManifest::parse(spaces.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 1048576 bytes");
    }
}
