//! Requests to virt-api, through the API server: what only the node of a guest can do.

use std::time::Duration;

use kube::Client;
use reconcile::Key;
use serde_json::Value;

/// Longer than virt-api waits for the node.
const TIMEOUT: Duration = Duration::from_secs(40);
const CONFLICT: u16 = 409;

/// Why virt-api did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubresourceError {
    /// The object is not in the right state.
    #[error("{message}")]
    Refused { message: String },
    #[error("virt-api does not answer")]
    Unavailable(#[source] Box<kube::Error>),
    #[error("virt-api does not answer in time")]
    TimedOut,
}

/// Whether the object of the request is a VM or a VMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Vm,
    Vmi,
}

/// Sends `PUT` to a verb of a VM or VMI.
pub(crate) async fn put(
    client: &Client,
    of: Of,
    key: &Key,
    verb: &str,
    body: &Value,
) -> Result<(), SubresourceError> {
    let plural = match of {
        Of::Vm => "virtualmachines",
        Of::Vmi => "virtualmachineinstances",
    };
    let path = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{}/{plural}/{}/{verb}",
        key.namespace, key.name
    );
    let request = http::Request::put(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes());
    let request = request.map_err(kube::Error::HttpError);
    let request = request.map_err(|error| SubresourceError::Unavailable(Box::new(error)))?;
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Err(_elapsed) => Err(SubresourceError::TimedOut),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.code == CONFLICT => {
            Err(SubresourceError::Refused {
                message: status.message.clone(),
            })
        }
        Ok(Err(error)) => Err(SubresourceError::Unavailable(Box::new(error))),
    }
}
