//! A small HTTPS client that expects a server name.
//!
//! One connection per request: proxies and webhooks keep no connection between calls, and an upgrade can take
//! over the connection. HTTP/1.1 only, because an upgrade needs it.
//! Invariant: the server's certificate is checked against [`Target::server_name`], whatever address
//! it connects to. Must not know: retries, balancing.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, header};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{net::TcpStream, sync::watch, time};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::task::TaskTracker;

use crate::{
    pki::{Identity, Trust},
    tls::{self, TlsError},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("connect to {address}")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("connect to {address} within {} s", CONNECT_TIMEOUT.as_secs())]
    ConnectTimeout { address: String },
    #[error("{name} is not a DNS name or address")]
    ServerName { name: String },
    #[error("TLS handshake with {name} at {address}")]
    Handshake {
        name: String,
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("send request to {address}")]
    Send {
        address: String,
        #[source]
        source: hyper::Error,
    },
}

/// The address of a server, and the name in its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host (name or address) and port.
    pub address: String,
    /// The name that the server's certificate must have.
    pub server_name: String,
}

impl Target {
    /// Connects to an address, independent of the name's DNS records.
    pub fn at(address: SocketAddr, server_name: impl Into<String>) -> Self {
        Self {
            address: address.to_string(),
            server_name: server_name.into(),
        }
    }

    /// Connects to a host by its own name.
    pub fn host(host: &str, port: u16) -> Self {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let address = if bare.contains(':') {
            format!("[{bare}]:{port}")
        } else {
            format!("{bare}:{port}")
        };
        Self {
            address,
            server_name: bare.to_owned(),
        }
    }
}

/// A client with one trust bundle and at most one certificate. Cheap to clone; clones share changes.
#[derive(Clone)]
pub struct HttpsClient {
    config: Arc<watch::Sender<Arc<ClientConfig>>>,
    silence: Option<Duration>,
    tasks: TaskTracker,
}

impl HttpsClient {
    /// `tasks` owns the task that drives each connection; it ends with its request or upgrade.
    pub fn new(
        trust: &Trust,
        identity: Option<&Identity>,
        tasks: TaskTracker,
    ) -> Result<Self, TlsError> {
        let config = Arc::new(watch::Sender::new(plain_http(trust, identity)?));
        Ok(Self {
            config,
            silence: None,
            tasks,
        })
    }

    /// Ends a connection if the other host confirms nothing for that long, as when the network between them
    /// breaks. Without this the kernel tries for a quarter of an hour.
    #[must_use]
    pub fn ending_after_silence(self, limit: Duration) -> Self {
        Self {
            silence: Some(limit),
            ..self
        }
    }

    /// Uses these from the next connection on. On error nothing changes.
    pub fn replace(&self, trust: &Trust, identity: Option<&Identity>) -> Result<(), TlsError> {
        self.config.send_replace(plain_http(trust, identity)?);
        Ok(())
    }

    /// Opens a TLS connection: the raw stream, for protocols that are not HTTP.
    pub async fn connect(&self, target: &Target) -> Result<TlsStream<TcpStream>, ClientError> {
        let address = || target.address.clone();
        let name = ServerName::try_from(target.server_name.clone()).map_err(|_| {
            ClientError::ServerName {
                name: target.server_name.clone(),
            }
        })?;
        let open = async {
            let stream = TcpStream::connect(&target.address)
                .await
                .map_err(|source| ClientError::Connect {
                    address: address(),
                    source,
                })?;
            let limited = match self.silence {
                Some(limit) => limit_silence(&stream, limit),
                None => Ok(()),
            };
            limited
                .and_then(|()| stream.set_nodelay(true))
                .map_err(|source| ClientError::Connect {
                    address: address(),
                    source,
                })?;
            TlsConnector::from(self.current())
                .connect(name, stream)
                .await
                .map_err(|source| ClientError::Handshake {
                    name: target.server_name.clone(),
                    address: address(),
                    source,
                })
        };
        time::timeout(CONNECT_TIMEOUT, open)
            .await
            .map_err(|_| ClientError::ConnectTimeout { address: address() })?
    }

    fn current(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config.borrow())
    }

    /// Sends one request; its URI needs only path and query. The response may be upgraded with
    /// `hyper::upgrade::on`. Callers set their own time limit for the response.
    pub async fn send<B>(
        &self,
        target: &Target,
        mut request: Request<B>,
    ) -> Result<Response<Incoming>, ClientError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let failed = |source| ClientError::Send {
            address: target.address.clone(),
            source,
        };
        let stream = self.connect(target).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        let address = target.address.clone();
        self.tasks.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(address, %error, "client connection ended");
            }
        });
        if !request.headers().contains_key(header::HOST)
            && let Ok(host) = HeaderValue::from_str(&target.server_name)
        {
            request.headers_mut().insert(header::HOST, host);
        }
        sender.send_request(request).await.map_err(failed)
    }
}

/// Data that is not confirmed counts (on Linux), and on an idle connection the probes of the kernel.
fn limit_silence(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let probes = (limit / 4).max(Duration::from_secs(1));
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, probes)?;
    sockopt::set_tcp_keepintvl(stream, probes)?;
    #[cfg(target_os = "linux")]
    {
        let milliseconds = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, milliseconds)?;
    }
    Ok(())
}

fn plain_http(trust: &Trust, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = tls::client_config(trust, identity)?;
    Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl fmt::Debug for HttpsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpsClient").finish_non_exhaustive()
    }
}
