//! From a VMI to the pod it runs in.
//!
//! Pure. One container, no init containers, no side cars: images of container disks are image
//! volumes, the guest's log is a file that QEMU writes.
//!
//! **Invariants**: the same VMI gives the same pod with the same name, so that creating it twice
//! cannot make two; the container runs as a plain user without capabilities; what the VMI asks
//! for and a pod cannot give yet is refused with its field path.
//!
//! It must not know what happens inside the pod, nor whether the pod exists.

mod container;
mod error;
mod metadata;
mod overhead;
mod pod;
mod probes;
mod resources;
mod scheduling;
mod volumes;

pub use error::PodError;
pub use metadata::{hostname, label_value, pod_name};
pub use overhead::memory_overhead;
pub use pod::{CONTAINER, RUNTIME_USER, pod};

use std::collections::BTreeMap;

/// What the cluster and its nodes are like, as far as pods care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub launcher_image: String,
    /// Of the launcher image.
    pub image_pull_policy: String,
    /// Secrets for the launcher image.
    pub image_pull_secrets: Vec<String>,
    pub acceleration: Acceleration,
    pub node_labels: NodeLabels,
    /// Every launcher pod asks for these labels of its node.
    pub node_selectors: BTreeMap<String, String>,
    /// How many virtual CPUs share a real one.
    pub cpu_allocation_ratio: u32,
    /// How much guest memory stands on a hundredth of requested memory.
    pub memory_overcommit_percent: u32,
    pub runtime_class: Option<String>,
}

impl Settings {
    /// What a cluster does that is not told otherwise.
    pub fn usual(launcher_image: impl Into<String>, acceleration: Acceleration) -> Self {
        Self {
            launcher_image: launcher_image.into(),
            image_pull_policy: "IfNotPresent".into(),
            image_pull_secrets: Vec::new(),
            acceleration,
            node_labels: NodeLabels::Absent,
            node_selectors: BTreeMap::new(),
            cpu_allocation_ratio: 10,
            memory_overcommit_percent: 100,
            runtime_class: None,
        }
    }
}

/// How guests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceleration {
    Kvm,
    /// By software; the pod then asks for no KVM device.
    Emulation,
}

/// Whether nodes carry labels that tell what guests they can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeLabels {
    /// Pods ask for the machine type, CPU model and features they need.
    Present,
    /// Pods ask for none of that; it shows when the guest starts.
    Absent,
}
