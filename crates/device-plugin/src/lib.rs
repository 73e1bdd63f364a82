//! Both ends of the kubelet's device-plugin protocol, version v1beta1: gRPC over unix sockets in one
//! directory.
//!
//! A plugin listens on its own socket and registers it with the kubelet over `kubelet.sock`
//! ([`Kubelet`]). The kubelet connects back, watches the list of devices, and calls `Allocate` when
//! a container is assigned some of them ([`Plugin`]). A kubelet that restarts recreates
//! `kubelet.sock`, and every plugin registers again.
//!
//! **Invariant**: this crate knows no specific device.

mod kubelet;
mod messages;
mod plugin;
#[cfg(test)]
mod tests;

pub use grpc::{Code, MAX_MESSAGE, Status, Streaming, bind, connect};
pub use kubelet::{KUBELET_SOCKET, Kubelet, Registrations, register};
pub use messages::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest,
    ContainerAllocateResponse, Device, DevicePluginOptions, DeviceSpec, HEALTHY,
    ListAndWatchResponse, Mount, NumaNode, RegisterRequest, TopologyInfo, UNHEALTHY, VERSION,
};
pub use plugin::{Devices, Plugin, PluginClient, serve_plugin};
