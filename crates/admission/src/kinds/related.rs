//! Related objects that checks and defaults depend on: lookups and their results.

use instancetype::infer::Inferred;
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

/// One lookup; its result is stored in the field of [`Related`] of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Vm {
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
    Vmi {
        namespace: String,
        name: String,
    },
    /// The migrations in the namespace with this value of the label for the VMI's name.
    Migrations {
        namespace: String,
        label: String,
    },
    /// All `KubeVirt` objects.
    Installations,
    /// The kinds of workloads of which objects exist in any namespace.
    Workloads,
    /// All restores in the namespace.
    Restores {
        namespace: String,
    },
    /// All backups in the namespace.
    Backups {
        namespace: String,
    },
}

/// Results of lookups. Objects that were not looked up are absent, like those that do not exist.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Related {
    pub vm: Option<VirtualMachine>,
    pub migrations: Vec<VirtualMachineInstanceMigration>,
    /// `namespace/name` of each `KubeVirt` object.
    pub installations: Vec<String>,
    /// Plural names of kinds.
    pub workloads: Vec<String>,
    pub snapshot: Option<VirtualMachineSnapshot>,
    pub content: Option<VirtualMachineSnapshotContent>,
    pub restores: Vec<VirtualMachineRestore>,
    pub backups: Vec<VirtualMachineBackup>,
    /// The instance type of a VM.
    pub instancetype: Option<Box<VirtualMachineInstancetypeSpec>>,
    pub preference: Option<Box<VirtualMachinePreferenceSpec>>,
    pub vmi: Option<Box<VirtualMachineInstance>>,
    /// Architecture of the source of a VM's first data volume template.
    pub architecture: Option<String>,
    /// Instance type and preference inferred from a VM's volumes.
    pub inferred: Inferred,
    /// All presets in the namespace of a VMI.
    pub presets: Vec<VirtualMachineInstancePreset>,
}
