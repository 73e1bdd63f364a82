//! The list of kinds, for code that must not forget one: tests over all of them, fuzz targets.

/// Calls a macro with the type of every kind that has a definition, each followed by a comma.
#[macro_export]
macro_rules! for_every_kind {
    ($call:ident) => {
        $call! {
            $crate::backup::VirtualMachineBackup,
            $crate::backup::VirtualMachineBackupTracker,
            $crate::clone::VirtualMachineClone,
            $crate::export::VirtualMachineExport,
            $crate::instancetype::VirtualMachineClusterInstancetype,
            $crate::instancetype::VirtualMachineInstancetype,
            $crate::migration_policy::MigrationPolicy,
            $crate::plugin::Plugin,
            $crate::pool::VirtualMachinePool,
            $crate::preference::VirtualMachineClusterPreference,
            $crate::preference::VirtualMachinePreference,
            $crate::restore::VirtualMachineRestore,
            $crate::snapshot::VirtualMachineSnapshot,
            $crate::snapshot::VirtualMachineSnapshotContent,
            $crate::vm::VirtualMachine,
            $crate::vmi::VirtualMachineInstance,
        }
    };
}
