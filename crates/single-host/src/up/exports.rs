//! Downloads of exports: the proxy is at the address of the API server, under paths that the API does not have.

use anyhow::Result;
use embedded_api::{EmbeddedApi, Identity};
use tokio_util::task::TaskTracker;
use virt_api::ExportProxy;
use virt_controller::ExportPlace;

use super::components::{Host, NAMESPACE};
use super::uploads::address;

pub(super) fn proxy(api: &EmbeddedApi, tasks: &TaskTracker) -> ExportProxy {
    let identity = Identity::service_account(NAMESPACE, "kubevirt-apiserver");
    ExportProxy::new(api.client(identity, "default"), tasks.clone())
}

/// Where the proxy is, for the links of exports.
pub(super) fn place(host: &Host<'_>) -> Result<ExportPlace> {
    Ok(ExportPlace::Fixed(virt_controller::ExportProxy {
        url: address(host)?,
        authority: host.certificates.first().users.pem().to_owned(),
    }))
}
