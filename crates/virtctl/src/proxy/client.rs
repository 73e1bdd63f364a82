//! A client that connects through a proxy.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{Request, Response, Uri, uri::Scheme};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_util::{
    client::legacy::connect::{
        Connection, HttpConnector,
        proxy::{SocksV5, Tunnel},
    },
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt, retry::RetryPolicy},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, retry::RetryLayer};

use super::choose::{Kind, Proxy};
use crate::{
    https::{self, Trust, Unanswered},
    requests::Requests,
};

/// Until the proxy has a connection to the server; kube's limit for a connection without a proxy.
const CONNECT: Duration = Duration::from_secs(30);
const SOCKS_PORT: u16 = 1080;

/// Sends a request to a server other than the API server.
pub(crate) async fn send<B>(
    trust: &Trust,
    proxy: &Proxy,
    direct: HttpConnector,
    request: Request<B>,
) -> Result<Response<Incoming>, Unanswered>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let to_proxy = proxy.settings.uri().clone();
    match proxy.kind {
        Kind::Http => {
            let connector = limited(tunnel(proxy, to_proxy, direct));
            https::send_over(trust, connector, request).await
        }
        Kind::Https => {
            // The authority of the server need not be that of the proxy.
            let config = Config::new(to_proxy.clone());
            let direct = config.rustls_https_connector_with_connector(direct);
            let direct = direct.context("prepare TLS for the proxy");
            let direct = direct.map_err(Unanswered::Unprepared)?;
            let connector = limited(tunnel(proxy, to_proxy, direct));
            https::send_over(trust, connector, request).await
        }
        Kind::Socks => {
            let connector = socks(proxy, &to_proxy, direct).map_err(Unanswered::Unprepared)?;
            https::send_over(trust, limited(connector), request).await
        }
    }
}

/// A client like kube's own, whose connections go through the proxy.
pub(crate) fn client(config: &Config, proxy: &Proxy, requests: &Requests) -> Result<Client> {
    let mut direct = HttpConnector::new();
    direct.enforce_http(false);
    direct.set_nodelay(true);
    let to_proxy = proxy.settings.uri().clone();
    match proxy.kind {
        Kind::Http => through(config, tunnel(proxy, to_proxy, direct), requests),
        Kind::Https => {
            let direct = config.rustls_https_connector_with_connector(direct);
            let direct = direct.context("prepare TLS for the proxy")?;
            through(config, tunnel(proxy, to_proxy, direct), requests)
        }
        Kind::Socks => through(config, socks(proxy, &to_proxy, direct)?, requests),
    }
}

fn socks(proxy: &Proxy, to_proxy: &Uri, direct: HttpConnector) -> Result<SocksV5<HttpConnector>> {
    let connector = SocksV5::new(socks_address(to_proxy)?, direct);
    Ok(match proxy.settings.raw_auth() {
        Some((user, password)) => connector.with_auth(user.to_owned(), password.to_owned()),
        None => connector,
    })
}

/// Asks the proxy for the connection by `CONNECT`.
fn tunnel<C>(proxy: &Proxy, to_proxy: Uri, direct: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(to_proxy, direct);
    match proxy.settings.basic_auth() {
        Some(login) => tunnel.with_auth(login.clone()),
        None => tunnel,
    }
}

/// The address as the connector reads it; a proxy without a port has that of SOCKS.
fn socks_address(proxy: &Uri) -> Result<Uri> {
    let host = proxy.host().context("find the host of the proxy")?;
    let port = proxy.port_u16().unwrap_or(SOCKS_PORT);
    let uri = Uri::builder().scheme(Scheme::HTTP).path_and_query("/");
    uri.authority(format!("{host}:{port}"))
        .build()
        .context("make the address of the proxy")
}

fn through<C>(config: &Config, connector: C, requests: &Requests) -> Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let connector = config.rustls_https_connector_with_connector(limited(connector));
    let connector = connector.context("prepare TLS")?;
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
    let service = ServiceBuilder::new()
        .layer(requests)
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .option_layer(config.auth_layer().context("prepare the login")?)
        .layer(
            config
                .extra_headers_layer()
                .context("prepare the headers")?,
        )
        .map_err(BoxError::from)
        .service(connections.build::<_, Body>(connector));
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// A connector with a time limit and the proxy in its errors.
fn limited<C>(
    connector: C,
) -> impl Service<Uri, Response = C::Response, Error = BoxError, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ 'static
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Send,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    tower::service_fn(move |server: Uri| {
        let opened = connector.clone().oneshot(server);
        async {
            match tokio::time::timeout(CONNECT, opened).await {
                Ok(opened) => opened.map_err(|error| {
                    let error = error.into();
                    BoxError::from(format!("connect through the proxy: {error}"))
                }),
                Err(_elapsed) => Err(format!("the proxy gave no connection in {CONNECT:?}").into()),
            }
        }
    })
}
