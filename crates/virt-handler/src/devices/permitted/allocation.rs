//! The devices of one resource, as containers get them.

use std::sync::Arc;

use device_plugin::{
    Code, ContainerAllocateRequest, ContainerAllocateResponse, DeviceSpec, Plugin, Status,
};
use model::DeviceAddress;

use super::{
    DeviceFiles,
    discovery::{self, Unit},
    selection::Permitted,
    usb::KnownUnits,
};

/// The plugin of one resource.
#[derive(Debug)]
pub(super) struct Allocations {
    pub(super) files: DeviceFiles,
    pub(super) permitted: Arc<[Permitted]>,
    pub(super) resource: String,
    pub(super) known: KnownUnits,
}

impl Plugin for Allocations {
    /// Searches again: a device may have got another driver, or have been replaced by another one.
    async fn allocate(
        &self,
        request: &ContainerAllocateRequest,
    ) -> Result<ContainerAllocateResponse, Status> {
        let found = discovery::search(&self.files, &self.permitted, &self.known).await;
        let found = found.map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
        let units = found.units.get(&self.resource);
        let units = units.map_or(&[][..], Vec::as_slice);
        let mut taken: Vec<&Unit> = Vec::new();
        for id in &request.device_ids {
            let unit = units.iter().find(|unit| unit.id == *id);
            taken.push(unit.ok_or_else(|| self.gone(id))?);
        }
        Ok(self.response(&taken))
    }
}

impl Allocations {
    fn gone(&self, id: &str) -> Status {
        let shown: String = id.chars().take(64).collect();
        let message = format!("{} has no device {shown:?} any more", self.resource);
        Status::new(Code::FailedPrecondition, message)
    }

    fn response(&self, units: &[&Unit]) -> ContainerAllocateResponse {
        let addresses: Vec<DeviceAddress> = units
            .iter()
            .flat_map(|unit| unit.addresses.iter().copied())
            .collect();
        let values: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let variable = addresses.first().map(|one| one.variable(&self.resource));
        let mut nodes: Vec<&String> = units.iter().flat_map(|unit| &unit.nodes).collect();
        nodes.sort();
        nodes.dedup();
        let devices = nodes.into_iter().map(|node| DeviceSpec {
            container_path: format!("/dev/{node}"),
            // Where the kubelet finds it, wherever this process does.
            host_path: format!("/dev/{node}"),
            permissions: "rw".to_owned(),
        });
        ContainerAllocateResponse {
            envs: variable
                .map(|variable| (variable, values.join(",")))
                .into_iter()
                .collect(),
            devices: devices.collect(),
            ..ContainerAllocateResponse::default()
        }
    }
}
