//! Processors and memory that a running guest gets.

use serde::{Deserialize, Serialize};

/// What a running guest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestSize {
    /// Virtual CPUs that are plugged in.
    pub vcpus: u32,
    /// Bytes of memory beyond that of the start, as they were last requested from the guest.
    pub requested_memory: u64,
    /// Bytes of them that the guest has taken.
    pub plugged_memory: u64,
}

/// What it is to have. The number of virtual CPUs never shrinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizePlan {
    pub vcpus: u32,
    /// `None` for a guest whose memory cannot change.
    pub memory: Option<MemoryPlan>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryPlan {
    /// Bytes beyond those of the start.
    pub requested: u64,
    /// The device that has them, for a domain without one.
    pub device: String,
}
