//! Devices that pods ask for as resources: the kubelet's side of the device-plugin protocol.
//!
//! Plugins register over `kubelet.sock`; their devices become capacity of the Node; containers
//! are allocated devices by ID, and the plugin responds with device nodes, mounts and variables
//! ([`Allocation`]). The resource of a plugin that ends stays on the Node, with nothing
//! allocatable, until the plugin registers again.
//!
//! **Invariants**: no device is allocated twice: an allocation is in a file of the pod's directory
//! before it is used, and is read before the first plugin registers after a restart. Nothing here
//! knows what a device is for.

mod allocation;
mod plugins;
mod registry;

pub(crate) use allocation::{Allocation, requested};
pub(crate) use plugins::{Devices, Holder};
pub(crate) use registry::{Amounts, RECORD_FILE};
