//! The kubelet's end: plugins register here.

use std::{future::Future, path::Path};

use bytes::Bytes;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::{
    Code, KUBELET_SOCKET, RegisterRequest, Status, VERSION,
    client::Client,
    frame,
    messages::Empty,
    server::{self, Answer, Service},
    socket,
};

const REGISTER: &str = "/v1beta1.Registration/Register";

/// Takes registrations.
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
        server::serve(self.listener, Desk(registrations), stop).await;
    }
}

#[derive(Clone)]
struct Desk<R>(R);

impl<R: Registrations + Clone> Service for Desk<R> {
    async fn call(&self, method: &str, message: Bytes) -> Result<Answer, Status> {
        if method != REGISTER {
            return Err(server::unknown(method));
        }
        let request: RegisterRequest = frame::decode(message)?;
        if request.version != VERSION {
            let message = format!(
                "version {:?} of the protocol is not spoken here, {VERSION} is",
                request.version
            );
            return Err(Status::new(Code::InvalidArgument, message));
        }
        self.0.register(request).await?;
        Ok(server::one(&Empty {}))
    }
}

/// Registers a plugin whose socket is in the same directory as the kubelet's.
pub async fn register(dir: &Path, request: &RegisterRequest) -> Result<(), Status> {
    let stream = socket::connect(dir, KUBELET_SOCKET)
        .await
        .map_err(|error| Status::unavailable(&error))?;
    let client = Client::over(stream).await?;
    client.call::<Empty>(REGISTER, request).await.map(drop)
}
