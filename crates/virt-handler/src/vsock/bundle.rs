//! The gRPC service by which guests get the authorities of virt-handler's certificate.

use bytes::Bytes;
use grpc::{Code, Reply, Service, Status};
use tokio::sync::watch;

use super::credentials::GuestCredentials;

/// The only method, as in `KubeVirt`.
pub(super) const METHOD: &str = "/kubevirt.vsock.system.v1.System/CABundle";

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Empty {}

/// The answer.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Bundle {
    /// PEM.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) raw: Vec<u8>,
}

/// Answers with the current authorities.
#[derive(Debug, Clone)]
pub(super) struct System {
    pub(super) credentials: watch::Receiver<Option<GuestCredentials>>,
}

impl Service for System {
    async fn call(&self, method: &str, message: Bytes) -> Result<Reply, Status> {
        if method != METHOD {
            return Err(grpc::unimplemented(method));
        }
        let Empty {} = grpc::decode(message)?;
        let credentials = self.credentials.borrow().clone();
        let credentials = credentials.ok_or_else(|| {
            Status::new(
                Code::Unavailable,
                "the authorities are not known yet, try again",
            )
        })?;
        let raw = credentials.authorities.pem().as_bytes().to_vec();
        Ok(grpc::unary(&Bundle { raw }))
    }
}
