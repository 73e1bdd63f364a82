//! The helper for persistent reservations, which the administrator runs on the node: QEMU may not make
//! reservations itself. Guests share it, so its plugin offers a slot for each. A pod gets the directory of its
//! socket, which it cannot change.

use std::path::PathBuf;

use device_plugin::{
    Code, ContainerAllocateRequest, ContainerAllocateResponse, Mount, Plugin, Status,
};
use model::paths;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::{health, plugin::OnePlugin};

const NAME: &str = "pr-helper";
/// Below the host's `/run`.
const SOCKET: &str = "kubevirt/daemons/pr/pr-helper.sock";
/// More guests than a node can run.
const SLOTS: u32 = 1000;

#[derive(Debug)]
struct Helper {
    socket: PathBuf,
}

/// Offers the helper whose socket is below `run` until `stop`.
pub(super) async fn offer(dir: PathBuf, run: PathBuf, stop: CancellationToken) {
    let socket = run.join(SOCKET);
    let usable = watch::Sender::new(true);
    let (list, updating) = health::offer(NAME, socket.clone(), SLOTS, usable.subscribe());
    let resource = format!("devices.kubevirt.io/{NAME}");
    let endpoint = format!("kubevirt-{NAME}.sock");
    let plugin = OnePlugin::new(dir, resource, endpoint, Helper { socket }, list);
    tokio::select! {
        () = updating => {}
        () = plugin.run(stop) => {}
    }
}

impl Plugin for Helper {
    async fn allocate(
        &self,
        _: &ContainerAllocateRequest,
    ) -> Result<ContainerAllocateResponse, Status> {
        if !self.socket.exists() {
            let message = format!("{} does not exist", paths::RESERVATIONS_SOCKET);
            return Err(Status::new(Code::FailedPrecondition, message));
        }
        Ok(ContainerAllocateResponse {
            mounts: vec![Mount {
                container_path: paths::RESERVATIONS.to_owned(),
                host_path: paths::RESERVATIONS.to_owned(),
                read_only: true,
            }],
            ..ContainerAllocateResponse::default()
        })
    }
}
