//! The kubelet's device-plugin protocol, version v1beta1, both ends of it: gRPC over unix sockets
//! in one directory.
//!
//! A plugin listens on a socket of its own and names it to the kubelet over `kubelet.sock`
//! ([`Kubelet`]); the kubelet connects back, is told of the devices as they come and go, and asks
//! what a container gets that was given some of them ([`Plugin`]). A kubelet that starts anew
//! makes `kubelet.sock` anew, and every plugin registers again.
//!
//! Of gRPC there is what this needs: calls with one message and one or many answers, without
//! compression and metadata.
//!
//! **Invariants**: no message is larger than [`MAX_MESSAGE`], and nothing is allocated for one
//! that claims to be; every call but a stream has a limit in time; nothing here knows a device.

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
