//! A guest's move to another pod.

use serde::{Deserialize, Serialize};

/// Most connections of one guest's memory. The handlers carry each as a flow of its own.
pub const MAX_PARALLEL_CONNECTIONS: u8 = 32;

/// How a guest is copied to the launcher that waits for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct MigrationPlan {
    /// The same at both launchers.
    pub id: String,
    /// The guest is slowed down until its writes can be copied.
    pub auto_converge: bool,
    /// At most that many MiB a second.
    pub bandwidth_mib: Option<u64>,
    /// The disks that the pods do not share, by their names in the guest; they are copied, too.
    pub copied_disks: Vec<String>,
    /// Those of them that are on other claims in the new pod, whose files and devices may differ in kind and length.
    pub moved_disks: Vec<String>,
    /// Both pods are on the same node, so all others of its files are shared by one kernel.
    pub is_within_node: bool,
    /// The copy is made such that it can be switched to post-copy, if the other pod can do that.
    pub post_copy: bool,
    /// The guest is paused when the handler asks for the switch, so that the copy ends. Not together with `post_copy`.
    pub pauses: bool,
    /// Connections through which memory flows at the same time, if the other pod can do that; 0 for a single one
    /// that carries all. Not together with `post_copy`.
    pub parallel_connections: u8,
    /// Memory is packed before it is sent. Needs `parallel_connections`.
    pub compression: MigrationCompression,
}

/// How memory is packed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MigrationCompression {
    #[default]
    None,
    Zstd,
}

/// A migration as a launcher sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationReport {
    pub id: String,
    pub stage: MigrationStage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<MigrationProgress>,
    /// The copy can be switched to post-copy, or the guest paused in its place, as the plan says. Only then the
    /// launcher knows the request for it.
    #[serde(default)]
    pub can_switch: bool,
    /// The request to switch is not to be made, or not again: it was accepted, or the guest's user has paused the
    /// guest, which is copied without post-copy while it is paused.
    #[serde(default)]
    pub needs_no_switch: bool,
    /// The guest was paused so that the copy ends, and goes on after it. False if its user has paused it as well.
    #[serde(default)]
    pub paused: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MigrationStage {
    /// This launcher waits for the guest of another one.
    Waiting,
    /// The guest arrives here.
    Receiving,
    /// All of the guest is here, paused. It runs when its old launcher has given it up.
    Received,
    /// The guest runs here and is copied to another pod.
    Copying,
    /// The guest runs in the new pod, and the rest of its memory follows. It cannot go back.
    PostCopy,
    /// The guest is in the other pod and no longer in this one, or the reverse.
    Done,
    /// The guest is where it was before.
    Failed(String),
    Cancelled,
}

/// How far the copy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationProgress {
    pub elapsed_ms: Option<u64>,
    pub total_bytes: Option<u64>,
    pub processed_bytes: Option<u64>,
    pub remaining_bytes: Option<u64>,
    /// Bytes a second.
    pub rate: Option<u64>,
    /// Bytes that the guest writes in a second.
    pub dirty_rate: Option<u64>,
    pub downtime_ms: Option<u64>,
}

/// What flows between the two pods of a migration. The handler connects a socket of one pod to that
/// of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationSocket {
    /// The two launchers.
    Control,
    /// The guest's memory and devices, between the two QEMUs.
    Memory,
    /// Its disks, between the two QEMUs.
    Disks,
}

impl MigrationSocket {
    pub const ALL: [Self; 3] = [Self::Control, Self::Memory, Self::Disks];

    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Memory => "memory",
            Self::Disks => "disks",
        }
    }

    /// Where the pod that the guest leaves connects, as a path inside the pod. The handler listens.
    pub fn source_path(self) -> String {
        format!("/var/run/kubevirt/sockets/migration-{}-out", self.name())
    }

    /// Where the pod that the guest enters listens, as a path inside the pod.
    pub fn target_path(self) -> String {
        format!("/var/run/kubevirt/sockets/migration-{}-in", self.name())
    }
}
