//! The metrics of this crate, under the names of KubeVirt. Only the process that leads has values.

metrics::table! {
    pub METRICS of "virt-controller":
    gauge MIGRATIONS_UNSET[] "kubevirt_vmi_migrations_in_unset_phase"
        "Migrations that were not looked at yet.";
    gauge MIGRATIONS_PENDING[] "kubevirt_vmi_migrations_in_pending_phase"
        "Migrations that wait for their turn.";
    gauge MIGRATIONS_SCHEDULING[] "kubevirt_vmi_migrations_in_scheduling_phase"
        "Migrations whose target pod is not ready yet.";
    gauge MIGRATIONS_RUNNING[] "kubevirt_vmi_migrations_in_running_phase"
        "Migrations that are under way, from the time when their target pod is ready.";
    object_gauge MIGRATION_SUCCEEDED["vmi", "vmim", "namespace"] "kubevirt_vmi_migration_succeeded"
        "1 for each migration that has succeeded.";
    object_gauge MIGRATION_FAILED["vmi", "vmim", "namespace"] "kubevirt_vmi_migration_failed"
        "1 for each migration that has failed.";
    object_gauge MIGRATION_START["node", "namespace", "name", "migration_name"] "kubevirt_vmi_migration_start_time_seconds"
        "When the copy of a guest began, in seconds since 1970; the node is the one that it leaves.";
    object_gauge MIGRATION_END["node", "namespace", "name", "migration_name", "status"] "kubevirt_vmi_migration_end_time_seconds"
        "When the migration of a guest ended, in seconds since 1970; the node is the one that has the guest.";
    long_histogram MIGRATION_PHASE_SECONDS["phase"] "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds"
        "Time from the creation of a migration until it enters a phase.";
}
