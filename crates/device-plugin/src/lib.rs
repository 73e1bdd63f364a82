//! Both ends of the kubelet's device-plugin protocol, version v1beta1: gRPC over unix sockets in one
//! directory.
//!
//! A plugin listens on its own socket and registers it with the kubelet over `kubelet.sock`
//! ([`Kubelet`]). The kubelet connects back, watches the list of devices, and calls `Allocate` when
//! a container is assigned some of them ([`Plugin`]). A kubelet that restarts recreates
//! `kubelet.sock`, and every plugin registers again.
//!
//! Only a subset of gRPC is implemented: unary and server-streaming calls, without compression and
//! metadata.
//!
//! **Invariants**: no message is larger than [`MAX_MESSAGE`], and no memory is allocated for a
//! length beyond it; every unary call has a time limit; this crate knows no specific device.

mod client;
mod frame;
mod kubelet;
mod messages;
mod plugin;
mod server;
mod socket;
mod status;
#[cfg(test)]
mod tests;

pub use client::Streaming;
pub use frame::MAX_MESSAGE;
pub use kubelet::{Kubelet, Registrations, register};
pub use messages::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest,
    ContainerAllocateResponse, Device, DevicePluginOptions, DeviceSpec, HEALTHY,
    ListAndWatchResponse, Mount, NumaNode, RegisterRequest, TopologyInfo, UNHEALTHY, VERSION,
};
pub use plugin::{Devices, Plugin, PluginClient, serve_plugin};
pub use socket::{KUBELET_SOCKET, bind, connect};
pub use status::{Code, Status};
