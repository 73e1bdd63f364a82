//! Subjects of rules.

/// The part of the API that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    // The spec of a guest.
    Identity,
    Compute,
    Firmware,
    Features,
    Security,
    Devices,
    Disks,
    Volumes,
    Networks,

    // A VirtualMachine.
    VmInstancetype,
    VmTemplate,
    DataVolumeTemplates,
    RunStrategy,
    LiveUpdate,
    /// Changes during a running snapshot or restore.
    SnapshotInProgress,
    VolumeRequests,

    /// Changes of a `VirtualMachineInstance`.
    VmiUpdate,

    // Default values.
    VmDefaults,
    VmiDefaults,
    /// Values that an instance type sets in a template.
    AppliedInstancetype,
    /// Values that a preference fills into a template.
    AppliedPreference,

    // Other kinds.
    Backup,
    Clone,
    Export,
    Instancetype,
    KubeVirt,
    Migration,
    MigrationPolicy,
    Plugin,
    Pool,
    Preference,
    Preset,
    ReplicaSet,
    Restore,
    Snapshot,
    Template,
}
