//! Other objects that an answer depends on: what to look up, and what was found.

use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance,
    backup::VirtualMachineBackup,
    instancetype::VirtualMachineInstancetypeSpec,
    migration_request::VirtualMachineInstanceMigration,
    preference::VirtualMachinePreferenceSpec,
    preset::VirtualMachineInstancePreset,
    restore::VirtualMachineRestore,
    snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent},
};
use serde::Deserialize;

use crate::instancetype::infer::Inferred;

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
    Instance {
        namespace: String,
        name: String,
    },
    /// All of the namespace that name the instance, in a label.
    Migrations {
        namespace: String,
        label: String,
    },
    /// Every `KubeVirt` object.
    Installations,
    /// Which kinds of guests there are any of, anywhere.
    Workloads,
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
    pub migrations: Vec<VirtualMachineInstanceMigration>,
    /// As namespace/name.
    pub installations: Vec<String>,
    /// Plural names of kinds.
    pub workloads: Vec<String>,
    pub snapshot: Option<VirtualMachineSnapshot>,
    pub content: Option<VirtualMachineSnapshotContent>,
    pub restores: Vec<VirtualMachineRestore>,
    pub backups: Vec<VirtualMachineBackup>,
    /// What a machine refers to, and its own instance.
    pub instancetype: Option<Box<VirtualMachineInstancetypeSpec>>,
    pub preference: Option<Box<VirtualMachinePreferenceSpec>>,
    pub instance: Option<Box<VirtualMachineInstance>>,
    /// What the source of a machine's first data volume template is made for.
    pub architecture: Option<String>,
    /// What a machine's volumes say of its instance type and preference.
    pub inferred: Inferred,
    /// All of an instance's namespace.
    pub presets: Vec<VirtualMachineInstancePreset>,
}
