//! The kubelet's registration service, and the plugin's client for it.

use std::{future::Future, path::Path};

use bytes::Bytes;
use grpc::{Client, Code, Reply, Service, Status};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::{RegisterRequest, VERSION, messages::Empty};

/// The kubelet's own socket.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
const REGISTER: &str = "/v1beta1.Registration/Register";

/// Receives registrations.
pub trait Registrations: Send + Sync + 'static {
    fn register(&self, request: RegisterRequest)
    -> impl Future<Output = Result<(), Status>> + Send;
}

/// The registration server of a node.
#[derive(Debug)]
pub struct Kubelet {
    listener: UnixListener,
}

impl Kubelet {
    pub fn new(listener: UnixListener) -> Self {
        Self { listener }
    }

    /// Serves until `stop`.
    pub async fn serve(self, registrations: impl Registrations + Clone, stop: CancellationToken) {
        grpc::serve(self.listener, RegistrationService(registrations), stop).await;
    }
}

#[derive(Clone)]
struct RegistrationService<R>(R);

impl<R: Registrations + Clone> Service for RegistrationService<R> {
    async fn call(&self, method: &str, message: Bytes) -> Result<Reply, Status> {
        if method != REGISTER {
            return Err(grpc::unimplemented(method));
        }
        let request: RegisterRequest = grpc::decode(message)?;
        if request.version != VERSION {
            let message = format!(
                "protocol version {:?} is not supported, only {VERSION} is",
                request.version
            );
            return Err(Status::new(Code::InvalidArgument, message));
        }
        self.0.register(request).await?;
        Ok(grpc::unary(&Empty {}))
    }
}

/// Registers a plugin whose socket is in the kubelet's directory.
pub async fn register(dir: &Path, request: &RegisterRequest) -> Result<(), Status> {
    let stream = grpc::connect(dir, KUBELET_SOCKET)
        .await
        .map_err(|error| Status::unavailable(&error))?;
    let client = Client::over(stream).await?;
    client.call::<Empty>(REGISTER, request).await.map(drop)
}
