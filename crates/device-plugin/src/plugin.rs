//! The plugin's server, and the kubelet's client for it.

use std::{future::Future, path::Path, sync::Arc};

use bytes::Bytes;
use futures::StreamExt as _;
use grpc::{Client, Reply, Service, Status, Streaming};
use tokio::{net::UnixListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, Device,
    DevicePluginOptions, ListAndWatchResponse, messages::Empty,
};

const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";

/// The complete device list of a plugin.
pub type Devices = Arc<[Device]>;

/// The behaviour of a plugin besides its device list.
pub trait Plugin: Send + Sync + 'static {
    /// The container's access to the devices allocated to it.
    fn allocate(
        &self,
        request: &ContainerAllocateRequest,
    ) -> impl Future<Output = Result<ContainerAllocateResponse, Status>> + Send;
}

/// Serves a plugin until `stop`; each connected kubelet gets the device list whenever it changes.
pub async fn serve_plugin(
    listener: UnixListener,
    plugin: Arc<impl Plugin>,
    devices: watch::Receiver<Devices>,
    stop: CancellationToken,
) {
    grpc::serve(listener, PluginService { plugin, devices }, stop).await;
}

struct PluginService<P> {
    plugin: Arc<P>,
    devices: watch::Receiver<Devices>,
}

impl<P> Clone for PluginService<P> {
    fn clone(&self) -> Self {
        Self {
            plugin: Arc::clone(&self.plugin),
            devices: self.devices.clone(),
        }
    }
}

impl<P: Plugin> Service for PluginService<P> {
    async fn call(&self, method: &str, message: Bytes) -> Result<Reply, Status> {
        match method {
            OPTIONS => Ok(grpc::unary(&DevicePluginOptions::default())),
            LIST_AND_WATCH => Ok(Reply::Stream(updates(self.devices.clone()).boxed())),
            ALLOCATE => {
                let request: AllocateRequest = grpc::decode(message)?;
                let mut response = AllocateResponse::default();
                for container in &request.container_requests {
                    let allocated = self.plugin.allocate(container).await?;
                    response.container_responses.push(allocated);
                }
                Ok(grpc::unary(&response))
            }
            _ => Err(grpc::unimplemented(method)),
        }
    }
}

/// The current list, and each new one, until the sender is dropped.
fn updates(mut devices: watch::Receiver<Devices>) -> impl futures::Stream<Item = Bytes> + Send {
    devices.mark_changed();
    futures::stream::unfold(devices, async |mut devices| {
        devices.changed().await.ok()?;
        let list = ListAndWatchResponse {
            devices: devices.borrow_and_update().to_vec(),
        };
        Some((grpc::encode(&list), devices))
    })
}

/// A kubelet's connection to one plugin.
#[derive(Debug)]
pub struct PluginClient {
    client: Client,
}

impl PluginClient {
    /// Connects to the plugin that listens at `endpoint` in `dir`.
    pub async fn connect(dir: &Path, endpoint: &str) -> Result<Self, Status> {
        let stream = grpc::connect(dir, endpoint)
            .await
            .map_err(|error| Status::unavailable(&error))?;
        let client = Client::over(stream).await?;
        Ok(Self { client })
    }

    pub async fn list_and_watch(&self) -> Result<Streaming<ListAndWatchResponse>, Status> {
        self.client.stream(LIST_AND_WATCH, &Empty {}).await
    }

    pub async fn allocate(&self, request: &AllocateRequest) -> Result<AllocateResponse, Status> {
        self.client.call(ALLOCATE, request).await
    }
}
