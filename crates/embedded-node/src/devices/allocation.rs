//! What a container asks for, and what its devices mean for it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use device_plugin::ContainerAllocateResponse;
use k8s_openapi::api::core::v1::Container;
use kubevirt_api::quantity::Amount;
use pod_supervisor::model::{Access, Device, Mount};

use crate::Failure;

/// Unprivileged users inside may use what was asked for.
const MODE: u32 = 0o666;

/// Resources of devices that a container wants, by its limits, and how many of each. Names without
/// a slash are the kernel's to count.
pub(crate) fn wanted(container: &Container) -> impl Iterator<Item = (&str, usize)> {
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

/// What a container gets beside what its own spec says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) devices: Vec<Device>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl Given {
    /// Adds what one plugin answered. Annotations are words to container runtimes that are not
    /// here; devices by CDI cannot be made.
    pub(crate) fn add(&mut self, answer: ContainerAllocateResponse) -> Result<(), Failure> {
        if let Some(device) = answer.cdi_devices.first() {
            let message = format!(
                "device {} is described by CDI, which this node does not speak",
                device.name
            );
            return Err(Failure::new("CreateContainerError", message));
        }
        let devices = answer.devices.into_iter().map(|device| Device {
            host_path: PathBuf::from(device.host_path),
            path: PathBuf::from(device.container_path),
            mode: MODE,
            uid: 0,
            gid: 0,
        });
        self.devices.extend(devices);
        let mounts = answer.mounts.into_iter().map(|mount| Mount {
            source: PathBuf::from(mount.host_path),
            destination: PathBuf::from(mount.container_path),
            access: if mount.read_only {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
        });
        self.mounts.extend(mounts);
        self.environment.extend(answer.envs);
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
        let wanted: Vec<_> = wanted(&container).collect();
        assert_eq!(wanted, [("a.io/x", 2)]);
    }

    #[test]
    fn an_answer_becomes_nodes_and_environment_and_cdi_is_refused() {
        let mut given = Given::default();
        given
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
        assert_eq!(given.devices[0].path, PathBuf::from("/dev/in"));
        assert_eq!(given.environment["A"], "b");
        let refused = given.add(ContainerAllocateResponse {
            cdi_devices: vec![CdiDevice {
                name: "v/c=d".into(),
            }],
            ..ContainerAllocateResponse::default()
        });
        assert!(refused.unwrap_err().message.contains("v/c=d"));
    }
}
