//! The node agent: it makes launcher pods into running guests and says what became of them.
//!
//! - [`launcher`] finds each pod's launcher, proves who it is and talks to it;
//! - `guest` is the reconciler: pod and VMI in, plans to the launcher and status to the VMI out;
//! - `prepare` plumbs a pod's network and renders everything a guest consists of;
//! - `volumes` is what becomes of the guest's disks;
//! - `streams` serves consoles, screens and verbs to `virt-api`;
//! - [`DevicePlugins`] offers the node's devices to the kubelet;
//! - `node` reports what the node can do and that the agent lives.
//!
//! **Invariants**: a guest's life does not depend on this process; nothing in a pod is reached by
//! a path that its tenant could bend ([`pods_dir`]); no secret is read; only this node's objects
//! are written.

mod capabilities;
mod devices;
mod guest;
pub mod launcher;
mod metrics;
mod node;
pub mod pods_dir;
mod prepare;
mod settings;
mod streams;
mod volumes;

pub use self::metrics::METRICS;
pub use capabilities::{Capabilities, CapabilitiesError, NodeFacts, Tsc};
pub use devices::{DevicePlugins, HostDevice};
pub use settings::{HandlerError, Settings, run};
