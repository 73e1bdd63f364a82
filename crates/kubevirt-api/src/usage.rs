//! What a guest uses of its node. `KubeVirt` has no such report; `virtctl top` reads it.

use serde::{Deserialize, Serialize};

/// The memory that a guest has now, and counters since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceUsage {
    /// When the counters were read, since the boot of the node.
    pub clock_milliseconds: u64,
    /// Time on CPUs, of QEMU with all its threads.
    pub cpu_milliseconds: u64,
    /// Memory of QEMU that is not swapped out.
    pub memory_bytes: u64,
    /// Bytes that were read from storage; absent if the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_written_bytes: Option<u64>,
    /// Bytes that the guest received.
    pub network_received_bytes: u64,
    pub network_sent_bytes: u64,
}
