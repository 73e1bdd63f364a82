//! virt-handler: turns launcher pods of its node into running guests and reports their status.
//!
//! - [`launcher`] finds, authenticates and calls each pod's launcher;
//! - `guest` is the reconciler: from pod and VMI to plans for the launcher and the VMI's status;
//! - `prepare` configures a pod's network and renders the guest's plan;
//! - `volumes` prepares the guest's disks;
//! - `streams` serves consoles, screens and verbs to `virt-api`;
//! - `vsock` tells guests by which authorities they know virt-handler, whose certificate is [`GuestCredentials`];
//! - [`DevicePlugins`] offers the node's devices to the kubelet;
//! - `node` publishes the node's capabilities and virt-handler's heartbeat.
//!
//! **Invariants**: a guest's life does not depend on this process; no file in a pod is accessed by a
//! path that its tenant could redirect ([`pods_dir`]); no secret is read; only this node's objects
//! are written.

mod capabilities;
mod devices;
mod failure_log;
mod guest;
pub mod launcher;
mod metrics;
mod migration;
mod node;
pub mod pods_dir;
mod prepare;
mod settings;
mod streams;
mod volumes;
mod vsock;

pub use self::metrics::METRICS;
pub use capabilities::{Capabilities, CapabilitiesError, NodeFacts, Tsc};
pub use cluster_view::Configuration;
pub use devices::{DeviceFiles, DevicePlugins, HostDevice, MediatedDevices, PermittedDevices};
pub use settings::{HandlerError, Settings, run};
pub use vsock::{GuestCredentials, VSOCK_CLIENT, VSOCK_GATE};
