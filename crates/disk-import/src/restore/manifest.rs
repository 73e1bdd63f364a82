//! `backup.json`: what a backup holds, and what it builds on. Pure.

use launcher_channel::is_plain_name;
use serde::Deserialize;

/// The longest manifest.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// The version of its form.
const VERSION: u32 = 1;
/// Of a volume of a VM.
const MAX_VOLUME_NAME: usize = 63;
const MAX_ENTRIES: usize = 512;
/// Hexadecimal digits of a sum.
const SUM_DIGITS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    version: u32,
    #[serde(rename = "type")]
    kind: Kind,
    /// The directory that it builds on.
    #[serde(default)]
    pub(super) parent: Option<String>,
    /// Of the manifest of the parent. Backups of older versions have none.
    #[serde(default)]
    pub(super) parent_sha256: Option<String>,
    /// By which a later backup builds on this one: the name of its directory.
    #[serde(default)]
    pub(super) checkpoint: Option<String>,
    #[serde(flatten)]
    pub(super) guest: Guest,
    pub(super) volumes: Vec<Entry>,
}

/// Whose disks they are.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Guest {
    namespace: String,
    name: String,
    /// Of the VMI: a restarted guest has another one, on which no backup of it builds.
    uid: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Kind {
    Full,
    Incremental,
}

/// The copy of one volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) volume: String,
    pub(super) file: String,
    pub(super) bytes: u64,
    /// The size of the disk. Backups of older versions have none.
    #[serde(default)]
    pub(super) capacity: Option<u64>,
    /// Of the whole file, in hexadecimal digits.
    #[serde(default)]
    pub(super) sha256: Option<String>,
}

impl Manifest {
    /// The message says what is wrong.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if head.version != VERSION {
            let version = head.version;
            return Err(format!(
                "its version is {version}, and this program knows {VERSION}"
            ));
        }
        let found: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match (found.kind, &found.parent) {
            (Kind::Full, Some(_)) => return Err("a full backup has no parent".to_owned()),
            (Kind::Incremental, None) => {
                return Err("an incremental backup needs a parent".to_owned());
            }
            (Kind::Incremental, Some(parent)) if !is_plain_name(parent) => {
                return Err(format!("its parent {parent:?} is no name of a directory"));
            }
            _ => {}
        }
        if found.parent_sha256.as_ref().is_some_and(|sum| !is_sum(sum)) {
            return Err(format!(
                "its parentSha256 has not {SUM_DIGITS} hexadecimal digits"
            ));
        }
        if found.volumes.len() > MAX_ENTRIES {
            return Err(format!("it has more than {MAX_ENTRIES} volumes"));
        }
        for (at, entry) in found.volumes.iter().enumerate() {
            entry.check()?;
            let mut before = found.volumes.iter().take(at);
            if before.any(|one| one.volume == entry.volume || one.file == entry.file) {
                return Err(format!("it has volume {} or its file twice", entry.volume));
            }
        }
        Ok(found)
    }

    pub(super) fn entry(&self, volume: &str) -> Option<&Entry> {
        self.volumes.iter().find(|one| one.volume == volume)
    }
}

impl Entry {
    fn check(&self) -> Result<(), String> {
        if !is_plain_name(&self.volume) || self.volume.len() > MAX_VOLUME_NAME {
            return Err(format!("{:?} is no name of a volume", self.volume));
        }
        if !is_plain_name(&self.file) {
            return Err(format!("{:?} is no name of a file", self.file));
        }
        if self.sha256.as_ref().is_some_and(|sum| !is_sum(sum)) {
            return Err(format!(
                "the sha256 of file {} has not {SUM_DIGITS} hexadecimal digits",
                self.file
            ));
        }
        Ok(())
    }
}

fn is_sum(text: &str) -> bool {
    text.len() == SUM_DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}
