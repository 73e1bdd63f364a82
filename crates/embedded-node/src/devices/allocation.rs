//! The device resources that a container requests, and what their plugins add to it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use device_plugin::ContainerAllocateResponse;
use k8s_openapi::api::core::v1::Container;
use kubevirt_api::quantity::Amount;
use pod_supervisor::model::{Access, Device, Mount};
use reasons::Reason;

use crate::Failure;

/// Unprivileged users in the container may use the devices.
const MODE: u32 = 0o666;

/// The device resources in a container's limits and their counts. Names without a slash are not
/// devices.
pub(crate) fn requested(container: &Container) -> impl Iterator<Item = (&str, usize)> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|all| all.limits.as_ref());
    limits
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.contains('/'))
        .map(|(name, amount)| {
            let units = Amount::parse(amount).map_or(0, Amount::units);
            (name.as_str(), usize::try_from(units).unwrap_or(usize::MAX))
        })
        .filter(|(_, count)| *count > 0)
}

/// Additions to a container beside its own spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) devices: Vec<Device>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl Allocation {
    /// Adds the response of a plugin. Annotations are for container runtimes, which this node does
    /// not have; CDI devices are refused.
    pub(crate) fn add(&mut self, response: ContainerAllocateResponse) -> Result<(), Failure> {
        if let Some(device) = response.cdi_devices.first() {
            let message = format!(
                "device {} is described by CDI, which this node does not support",
                device.name
            );
            return Err(Failure::new(Reason::CreateContainerError, message));
        }
        let devices = response.devices.into_iter().map(|device| Device {
            host_path: PathBuf::from(device.host_path),
            path: PathBuf::from(device.container_path),
            mode: MODE,
            uid: 0,
            gid: 0,
        });
        self.devices.extend(devices);
        let mounts = response.mounts.into_iter().map(|mount| Mount {
            source: PathBuf::from(mount.host_path),
            destination: PathBuf::from(mount.container_path),
            access: if mount.read_only {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
        });
        self.mounts.extend(mounts);
        self.environment.extend(response.envs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use device_plugin::{CdiDevice, DeviceSpec};
    use serde_json::json;

    use super::*;

    #[test]
    fn only_limits_with_a_slash_are_devices() {
        let container: Container = serde_json::from_value(json!({"name": "c", "resources": {
            "limits": {"cpu": "1", "a.io/x": "2", "a.io/none": "0"},
            "requests": {"a.io/y": "1"},
        }}))
        .unwrap();
        let found: Vec<_> = requested(&container).collect();
        assert_eq!(found, [("a.io/x", 2)]);
    }

    #[test]
    fn response_adds_nodes_and_variables_and_refuses_cdi() {
        let mut allocation = Allocation::default();
        allocation
            .add(ContainerAllocateResponse {
                devices: vec![DeviceSpec {
                    container_path: "/dev/in".into(),
                    host_path: "/dev/out".into(),
                    permissions: "rw".into(),
                }],
                envs: [("A".to_owned(), "b".to_owned())].into(),
                ..ContainerAllocateResponse::default()
            })
            .unwrap();
        assert_eq!(allocation.devices[0].path, PathBuf::from("/dev/in"));
        assert_eq!(allocation.environment["A"], "b");
        let refused = allocation.add(ContainerAllocateResponse {
            cdi_devices: vec![CdiDevice {
                name: "v/c=d".into(),
            }],
            ..ContainerAllocateResponse::default()
        });
        assert!(refused.unwrap_err().message.contains("v/c=d"));
    }
}
