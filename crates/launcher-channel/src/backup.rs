//! Backups: the guest's disks, copied to files of a volume while it runs.

use serde::{Deserialize, Serialize};

use crate::HOTPLUG_DISKS;

/// The file of a backup that is complete and on disk. It is written last.
pub const BACKUP_MANIFEST: &str = "backup.json";
/// A manifest that is not complete.
pub const BACKUP_DRAFT: &str = ".backup.json.new";
/// The socket in the directory of a backup at which QEMU offers the disks by NBD. `disk-export`, which must not know
/// launchers, has the name, too.
pub const BACKUP_SOCKET: &str = "nbd.sock";
/// The most increments that build on one full backup, which is a chain of one directory more. QEMU opens no chain of
/// more than 200 files.
pub const MAX_INCREMENTS: usize = 100;
/// The longest name of a directory or a file.
const MAX_NAME: usize = 255;

/// A directory of a hot-plugged volume that is to hold a copy of each disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupPlan {
    /// The hot-plugged volume.
    pub volume: String,
    /// Its name, which identifies the backup.
    pub directory: String,
    /// The volumes whose disks are copied.
    pub disks: Vec<String>,
    /// Whether the guest writes its caches to disk first, where its agent can do that.
    pub quiesces: bool,
    /// Whether QEMU records from this moment on which blocks change: the next backup can build on this one. The
    /// checkpoint has the name of the directory.
    pub leaves_checkpoint: bool,
    /// The directory of the backup to build on: only blocks that changed since then are copied. If they are not
    /// known for sure, all blocks are copied.
    pub parent: Option<String>,
    /// The checkpoints of trackers. A backup that leaves a checkpoint removes all others but its own and the parent's.
    pub kept_checkpoints: Vec<String>,
    /// Whether the disks are not copied but offered as they are at this moment, until the backup is cancelled. The
    /// directory gets what the guest overwrites meanwhile. Only for a launcher whose state shows that it can.
    pub is_offer: bool,
}

impl BackupPlan {
    /// The directory inside the pod; `None` unless all names are plain.
    pub fn path(&self) -> Option<String> {
        let mut names = [&self.volume, &self.directory]
            .into_iter()
            .chain(&self.disks)
            .chain(&self.parent);
        let is_valid = names.all(|name| is_plain_name(name));
        is_valid.then(|| format!("{HOTPLUG_DISKS}/{}/{}", self.volume, self.directory))
    }
}

/// The name of the file that holds the copy of a disk.
pub fn backup_file(volume: &str) -> String {
    format!("{volume}.qcow2")
}

/// Whether it is the name of one directory or file, and of none that is hidden. Messages have it, too: no control
/// characters.
pub fn is_plain_name(name: &str) -> bool {
    let is_text = |one: char| one != '/' && !one.is_control();
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('.')
        && name.chars().all(is_text)
}

/// The last backup as the launcher sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupReport {
    pub plan: BackupPlan,
    pub stage: BackupStage,
    /// `None` until it is known.
    #[serde(default)]
    pub quiesce: Option<Quiesce>,
    /// What there is to say about one that is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl BackupReport {
    /// Whether it is about that backup, whatever its disks are.
    pub fn is_of(&self, plan: &BackupPlan) -> bool {
        self.plan.volume == plan.volume && self.plan.directory == plan.directory
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BackupStage {
    #[serde(rename_all = "camelCase")]
    Running {
        /// In steps, so that a state is not published too often.
        percent: u8,
    },
    /// The disks are offered. It goes on like that until it is cancelled.
    Offered,
    /// All files are complete and on disk.
    #[serde(rename_all = "camelCase")]
    Done {
        /// Of all files.
        bytes: u64,
        #[serde(default)]
        lineage: Lineage,
    },
    /// With the reason. No file is left, unless the storage failed.
    Failed(String),
    /// It was cancelled, and no file is left.
    Cancelled,
}

impl BackupStage {
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Offered)
    }
}

/// What a backup builds on, and what can build on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lineage {
    /// The directory of the backup that it builds on; `None` if it has all blocks.
    pub parent: Option<String>,
    /// Whether it left a checkpoint.
    pub has_checkpoint: bool,
    /// Why it has all blocks although it was to build on a parent, or why it left no checkpoint.
    pub note: Option<String>,
}

/// Whether the guest wrote its caches to disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Quiesce {
    Succeeded,
    /// With the reason.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_have_a_path() {
        for (volume, directory, disk, is_valid) in [
            ("v", "d", "root", true),
            ("..", "d", "root", false),
            ("v", "", "root", false),
            ("v", "../d", "root", false),
            ("v", ".d", "root", false),
            ("v", "d\n", "root", false),
            ("v", "d", "r\u{1b}oot", false),
            ("v", "d", "../root", false),
            ("v", "d", "", false),
        ] {
            let plan = BackupPlan {
                volume: volume.to_owned(),
                directory: directory.to_owned(),
                disks: vec![disk.to_owned()],
                ..BackupPlan::default()
            };
            let expected = is_valid.then(|| format!("{HOTPLUG_DISKS}/{volume}/{directory}"));
            assert_eq!(plan.path(), expected, "{plan:?}");
            let child = BackupPlan {
                parent: Some("../d".to_owned()),
                ..plan
            };
            assert_eq!(child.path(), None);
        }
    }
}
