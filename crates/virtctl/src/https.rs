//! Requests to servers other than the API server: the upload proxy and export servers.

use anyhow::{Context, Result};
use hyper::body::Body;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connect, HttpConnector},
    },
    rt::TokioExecutor,
};
use kube::client::ConfigExt;

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
    let mut config = kube::Config::new(http::Uri::from_static("https://server"));
    config.accept_invalid_certs = trust.insecure;
    if let Some(pem) = &trust.authorities {
        config.root_cert = Some(crate::connect::certificates(pem.as_bytes())?);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let connector = config
        .rustls_https_connector_with_connector(connector)
        .context("prepare TLS")?;
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}
