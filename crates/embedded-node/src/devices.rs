//! Devices that pods ask for as resources: a fixed table until device plugins are spoken.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Container;
use pod_supervisor::model::Device;

/// A resource name and the device node that a container asking for it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceResource {
    pub resource: String,
    pub path: PathBuf,
    /// How many containers may hold it at once; the node itself does not count.
    pub count: u32,
}

impl DeviceResource {
    /// The devices of virtual machines that exist on this host.
    pub fn of_this_host() -> Vec<Self> {
        [
            ("devices.kubevirt.io/kvm", "/dev/kvm"),
            ("devices.kubevirt.io/tun", "/dev/net/tun"),
            ("devices.kubevirt.io/vhost-net", "/dev/vhost-net"),
        ]
        .into_iter()
        .map(|(resource, path)| Self {
            resource: resource.into(),
            path: path.into(),
            count: 1000,
        })
        .filter(|device| device.path.exists())
        .collect()
    }
}

/// Resource names of devices that a container wants, by limits or requests.
pub(crate) fn wanted(container: &Container) -> impl Iterator<Item = &str> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|all| all.limits.as_ref());
    limits
        .into_iter()
        .flatten()
        .filter(|(name, amount)| name.contains('/') && amount.0 != "0")
        .map(|(name, _)| name.as_str())
}

/// The device nodes for a container. Unprivileged users inside may use what was asked for.
pub(crate) fn nodes(container: &Container, table: &[DeviceResource]) -> Vec<Device> {
    wanted(container)
        .filter_map(|name| table.iter().find(|device| device.resource == name))
        .map(|device| Device {
            host_path: device.path.clone(),
            path: device.path.clone(),
            mode: 0o666,
            uid: 0,
            gid: 0,
        })
        .collect()
}
