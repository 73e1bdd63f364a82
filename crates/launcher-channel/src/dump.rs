//! The guest's memory, written to a file: for debuggers, or with the state of its devices, to end the guest
//! and to go on from there.

use serde::{Deserialize, Serialize};

use crate::HOTPLUG_DISKS;

/// The end of the name of every dump.
pub const DUMP_SUFFIX: &str = ".memory.dump";
/// The end of the name of every saved state.
pub const SAVED_SUFFIX: &str = ".saved";

/// A file of a hot-plugged volume that is to hold the guest's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DumpPlan {
    pub volume: String,
    /// Its name, which identifies the dump.
    pub file: String,
}

impl DumpPlan {
    /// Whether the whole state is saved, which ends the guest.
    pub fn is_saving(&self) -> bool {
        self.file.ends_with(SAVED_SUFFIX)
    }

    /// The path inside the pod; `None` unless both are plain names, and the file is one of a dump or of a
    /// saved state.
    pub fn path(&self) -> Option<String> {
        let is_plain =
            |name: &str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        let is_known = self.is_saving() || self.file.ends_with(DUMP_SUFFIX);
        let is_valid = is_plain(&self.volume) && is_plain(&self.file) && is_known;
        is_valid.then(|| format!("{HOTPLUG_DISKS}/{}/{}", self.volume, self.file))
    }
}

/// The last dump as the launcher sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DumpReport {
    pub plan: DumpPlan,
    pub stage: DumpStage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DumpStage {
    Running,
    /// The file is complete and on disk.
    Done,
    /// The file is empty or gone.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dumps_in_hot_plugged_volumes_have_a_path() {
        for (volume, file, expected) in [
            ("v", "a.memory.dump", Some("v/a.memory.dump")),
            ("v", "a.saved", Some("v/a.saved")),
            ("v", "../a.saved", None),
            ("v", "disk.img", None),
            ("v", "../w/a.memory.dump", None),
            ("v", ".memory.dump", None),
            ("..", "a.memory.dump", None),
            ("", "a.memory.dump", None),
        ] {
            let plan = DumpPlan {
                volume: volume.to_owned(),
                file: file.to_owned(),
            };
            let expected = expected.map(|below| format!("{HOTPLUG_DISKS}/{below}"));
            assert_eq!(plan.path(), expected, "{plan:?}");
        }
    }
}
