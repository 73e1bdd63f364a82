//! The plugin's end, and the kubelet's way to it.

use std::{future::Future, path::Path, sync::Arc};

use bytes::Bytes;
use futures::StreamExt as _;
use tokio::{net::UnixListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, Device,
    DevicePluginOptions, ListAndWatchResponse, Status,
    client::{Client, Streaming},
    frame,
    messages::Empty,
    server::{self, Answer, Service},
    socket,
};

const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";

/// All devices of a plugin, as of now.
pub type Devices = Arc<[Device]>;

/// What a plugin does beside keeping its list.
pub trait Plugin: Send + Sync + 'static {
    /// What a container gets that was given these devices.
    fn allocate(
        &self,
        request: &ContainerAllocateRequest,
    ) -> impl Future<Output = Result<ContainerAllocateResponse, Status>> + Send;
}

/// Serves a plugin until `stop`; each kubelet that asks is told of the devices whenever they
/// change.
pub async fn serve_plugin(
    listener: UnixListener,
    plugin: Arc<impl Plugin>,
    devices: watch::Receiver<Devices>,
    stop: CancellationToken,
) {
    server::serve(listener, Served { plugin, devices }, stop).await;
}

struct Served<P> {
    plugin: Arc<P>,
    devices: watch::Receiver<Devices>,
}

impl<P> Clone for Served<P> {
    fn clone(&self) -> Self {
        Self {
            plugin: Arc::clone(&self.plugin),
            devices: self.devices.clone(),
        }
    }
}

impl<P: Plugin> Service for Served<P> {
    async fn call(&self, method: &str, message: Bytes) -> Result<Answer, Status> {
        match method {
            OPTIONS => Ok(server::one(&DevicePluginOptions::default())),
            LIST_AND_WATCH => Ok(Answer::Many(updates(self.devices.clone()).boxed())),
            ALLOCATE => {
                let request: AllocateRequest = frame::decode(message)?;
                let mut response = AllocateResponse::default();
                for container in &request.container_requests {
                    let given = self.plugin.allocate(container).await?;
                    response.container_responses.push(given);
                }
                Ok(server::one(&response))
            }
            _ => Err(server::unknown(method)),
        }
    }
}

/// The list as it is, and again after each change, until its owner ends.
fn updates(mut devices: watch::Receiver<Devices>) -> impl futures::Stream<Item = Bytes> + Send {
    devices.mark_changed();
    futures::stream::unfold(devices, async |mut devices| {
        devices.changed().await.ok()?;
        let list = ListAndWatchResponse {
            devices: devices.borrow_and_update().to_vec(),
        };
        Some((frame::encode(&list), devices))
    })
}

/// A kubelet's conversation with one plugin.
#[derive(Debug)]
pub struct PluginClient {
    client: Client,
}

impl PluginClient {
    /// Connects to the plugin that listens at `endpoint` in `dir`.
    pub async fn connect(dir: &Path, endpoint: &str) -> Result<Self, Status> {
        let stream = socket::connect(dir, endpoint)
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
