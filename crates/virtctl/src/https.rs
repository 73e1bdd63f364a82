//! Requests to servers other than the API server: the upload proxy and export servers.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{Request, Response, Uri};
use hyper::{
    body::{Body, Incoming},
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

use crate::proxy::{self, Proxies};

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

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It was not sent: another attempt fails, too.
    Unprepared(anyhow::Error),
    /// The server was not reached, or the connection broke.
    Broken(anyhow::Error),
}

/// Sends a request to an `http` or `https` address, through the proxy for it.
pub(crate) async fn send<B>(
    trust: &Trust,
    proxies: &Proxies,
    request: Request<B>,
) -> Result<Response<Incoming>, Unanswered>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    // A server may say nothing for long while it works. Routers on the way forget silent connections.
    connector.set_keepalive(Some(KEEPALIVE));
    let proxy = proxies.to(request.uri());
    match proxy.map_err(|error| Unanswered::Unprepared(error.into()))? {
        Some(proxy) => proxy::send(trust, &proxy, connector, request).await,
        None => send_over(trust, connector, request).await,
    }
}

/// Sends a request over a connection that this connector makes.
pub(crate) async fn send_over<C, B>(
    trust: &Trust,
    connector: C,
    request: Request<B>,
) -> Result<Response<Incoming>, Unanswered>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let client = client_over(trust, connector).map_err(Unanswered::Unprepared)?;
    let answer = client.request(request).await;
    answer.map_err(|error| Unanswered::Broken(error.into()))
}

/// A client whose connections are made by this connector.
fn client_over<C, B>(
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
