//! Requests to servers other than the API server: the upload proxy and export servers.

use std::time::Duration;

use anyhow::{Context, Result};
use http::Uri;
use hyper::{
    body::Body,
    rt::{Read, Write},
};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connect, Connection, HttpConnector},
    },
    rt::TokioExecutor,
};
use kube::client::ConfigExt;
use tower::{BoxError, Service};

/// Silence after which the connection is checked.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How the server proves who it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// Accept any certificate.
    pub(crate) insecure: bool,
    /// Certificates of the authorities, in PEM; those of the system if there are none.
    pub(crate) authorities: Option<String>,
}

/// A client for `http` and `https` addresses.
pub(crate) fn client<B>(
    trust: &Trust,
) -> Result<Client<impl Connect + Clone + Send + Sync + 'static, B>>
where
    B: Body + Send,
    B::Data: Send,
{
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    // A server may say nothing for long while it works. Routers on the way forget silent connections.
    connector.set_keepalive(Some(KEEPALIVE));
    client_over(trust, connector)
}

/// A client whose connections are made by this connector.
pub(crate) fn client_over<C, B>(
    trust: &Trust,
    connector: C,
) -> Result<Client<impl Connect + Clone + Send + Sync + 'static, B>>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
    B: Body + Send,
    B::Data: Send,
{
    let mut config = kube::Config::new(Uri::from_static("https://server"));
    config.accept_invalid_certs = trust.insecure;
    if let Some(pem) = &trust.authorities {
        config.root_cert = Some(crate::connect::certificates(pem.as_bytes())?);
    }
    let connector = config
        .rustls_https_connector_with_connector(connector)
        .context("prepare TLS")?;
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}
