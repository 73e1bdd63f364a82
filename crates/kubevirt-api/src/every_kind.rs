//! The list of kinds, for code that must not forget one: tests over all of them, fuzz targets.

/// Calls a macro with the type of every kind that has a definition, each followed by a comma.
#[macro_export]
macro_rules! for_every_kind {
    ($call:ident) => {
        $call! {
            $crate::backup::VirtualMachineBackup,
            $crate::backup::VirtualMachineBackupTracker,
            $crate::backup_restore::VirtualMachineBackupRestore,
            $crate::clone::VirtualMachineClone,
            $crate::export::VirtualMachineExport,
            $crate::instancetype::VirtualMachineClusterInstancetype,
            $crate::instancetype::VirtualMachineInstancetype,
            $crate::kubevirt::KubeVirt,
            $crate::migration_policy::MigrationPolicy,
            $crate::migration_request::VirtualMachineInstanceMigration,
            $crate::plugin::Plugin,
            $crate::pool::VirtualMachinePool,
            $crate::preference::VirtualMachineClusterPreference,
            $crate::preference::VirtualMachinePreference,
            $crate::preset::VirtualMachineInstancePreset,
            $crate::replica_set::VirtualMachineInstanceReplicaSet,
            $crate::restore::VirtualMachineRestore,
            $crate::snapshot::VirtualMachineSnapshot,
            $crate::snapshot::VirtualMachineSnapshotContent,
            $crate::template::VirtualMachineTemplate,
            $crate::template::VirtualMachineTemplateRequest,
            $crate::vm::VirtualMachine,
            $crate::vmi::VirtualMachineInstance,
        }
    };
}
