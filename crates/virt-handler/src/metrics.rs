//! The metrics of this crate.

metrics::table! {
    pub METRICS of "virt-handler":
    gauge GUESTS["phase"] "ferrovirt_virt_handler_guests"
        "VMIs of this node by phase, as of the last reconcile.";
    gauge LAUNCHERS[] "ferrovirt_virt_handler_launchers_connected"
        "Launchers that are connected.";
    gauge STREAMS["device"] "ferrovirt_virt_handler_streams_open"
        "Open streams by device: console, vnc, usbredir or portforward.";
    counter LAUNCHER_REQUESTS["result"] "ferrovirt_virt_handler_launcher_requests_total"
        "Requests to launchers by result: done, refused, timed_out, not_connected, unexpected_reply or too_large.";
    object_counter MIGRATION_TOTAL["namespace", "name", "node"] "kubevirt_vmi_migration_data_bytes_total"
        "Bytes that a migration in progress copies, as its guest's size is known now.";
    object_gauge MIGRATION_PROCESSED["namespace", "name", "node"] "kubevirt_vmi_migration_data_processed_bytes"
        "Bytes that a migration in progress has copied, the repeated ones too.";
    object_gauge MIGRATION_REMAINING["namespace", "name", "node"] "kubevirt_vmi_migration_data_remaining_bytes"
        "Bytes that a migration in progress still has to copy.";
    object_gauge MIGRATION_DIRTY_RATE["namespace", "name", "node"] "kubevirt_vmi_migration_dirty_memory_rate_bytes"
        "Bytes of memory that a guest writes in a second during its migration.";
    object_gauge MIGRATION_RATE["namespace", "name", "node"] "kubevirt_vmi_migration_memory_transfer_rate_bytes"
        "Bytes of memory that a migration copies in a second.";
}
