//! Whether a guest that migrates has arrived.

use kubevirt_api::migration::VirtualMachineInstanceMigrationState as State;

/// Whether the source has given the guest up, or the guest runs at the target.
pub fn has_arrived(state: &State) -> bool {
    let is_there =
        state.completed == Some(true) || state.target_node_domain_ready_timestamp.is_some();
    is_there && state.failed != Some(true)
}
