//! The container of the guest: its name, its user, and its time to shut down.

use kubevirt_api::VirtualMachineInstance;

/// Name of the one container.
pub const CONTAINER: &str = "compute";
/// User and group that everything in the pod runs as.
pub const RUNTIME_USER: i64 = 107;

/// Seconds that a guest has to shut down, unless the VMI sets them.
const DEFAULT_GRACE: i64 = 30;

/// Seconds that the guest may take to shut down.
pub(crate) fn grace_seconds(vmi: &VirtualMachineInstance) -> i64 {
    vmi.spec
        .termination_grace_period_seconds
        .unwrap_or(DEFAULT_GRACE)
        .max(0)
}
