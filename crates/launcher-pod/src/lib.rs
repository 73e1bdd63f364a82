//! From a VMI to the pod it runs in.
//!
//! Pure. One container, and no sidecars but the hooks of the tenant and of network bindings: images of
//! container disks are image volumes, the guest's log is a file that QEMU writes, shared filesystems are
//! served from inside. Only where the cluster has no image volumes do init containers copy the disks.
//!
//! **Invariants**: the same VMI, settings and surroundings give the same pod with the same name, so
//! that creating it twice cannot make two; the container runs as an unprivileged user without
//! capabilities; a field that a pod cannot provide yet is refused with its path; a fact that is
//! needed and unknown (the mode of a persistent volume claim) is an error, never a guess.
//!
//! It must not know what happens inside the pod, nor whether the pod exists.

mod attachment;
mod compute;
mod configured;
mod container;
mod error;
mod guest;
mod hooks;
mod incoming;
mod init;
mod metadata;
mod networks;
mod overhead;
mod pod;
mod probes;
mod resources;
mod scheduling;
mod security;
mod settings;
mod surroundings;
mod target;
mod volumes;

pub use attachment::{
    Attachment, attachment_pod, attachment_pod_name, attachment_selector, on_node,
    tolerations_beside,
};
pub use compute::{CONTAINER, RUNTIME_USER};
pub use container::SHARED_PATHS;
pub use error::PodError;
pub use metadata::{label_value, pod_name};
pub use overhead::memory_overhead;
pub use pod::{pod, provisioning_pod, provisioning_pod_name};
pub use security::{container_context, pod_context};
pub use settings::{Acceleration, ContainerDisks, Feature, Ratio, Settings};
pub use surroundings::{Claim, ClaimMode, Namespace, Surroundings};
pub use target::{Destination, Migration, current_pod_name, target_pod, target_pod_name};
pub use volumes::STATE_VOLUME;

use model::Guest;

/// Everything a part of the pod may be rendered from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) guest: &'a Guest<'a>,
    pub(crate) settings: &'a Settings,
    pub(crate) surroundings: &'a Surroundings,
}
