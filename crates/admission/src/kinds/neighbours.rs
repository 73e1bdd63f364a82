//! Other objects that an answer depends on: what to look up, and what was found.

use kubevirt_api::{
    VirtualMachine,
    backup::VirtualMachineBackup,
    restore::VirtualMachineRestore,
    snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent},
};
use serde::Deserialize;

/// One thing to look up; the answer goes into the field of [`Neighbours`] of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    Machine {
        namespace: String,
        name: String,
    },
    Snapshot {
        namespace: String,
        name: String,
    },
    /// The content of the snapshot that was looked up before.
    Content {
        namespace: String,
    },
    /// All of the namespace.
    Restores {
        namespace: String,
    },
    /// All of the namespace.
    Backups {
        namespace: String,
    },
}

/// What was found. What nobody asked for is empty, like what is not there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Neighbours {
    pub machine: Option<VirtualMachine>,
    pub snapshot: Option<VirtualMachineSnapshot>,
    pub content: Option<VirtualMachineSnapshotContent>,
    pub restores: Vec<VirtualMachineRestore>,
    pub backups: Vec<VirtualMachineBackup>,
}
