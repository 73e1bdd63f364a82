//! The accept loop: TLS handshake, then HTTP/1.1 or HTTP/2 into an axum router.
//!
//! Invariants: every request carries a [`Peer`]; a client must finish the handshake and the request's head in
//! bounded time and send requests to keep its connection; no address holds all connections; after `run` returns, no
//! connection is left; a panic ends one request, with a 500, or one connection. An upgraded connection belongs to its
//! request handler.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, rt::Executor, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::{
    held::hold,
    peer::{Peer, PeerCertificate},
    peers::{Activity, Addresses},
    tls::TlsSource,
};

/// Limits on connections and times.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Concurrent connections; more wait in the kernel's queue.
    pub connections: usize,
    /// Time limit of the TLS handshake.
    pub handshake: Duration,
    /// Time limit for the head of an HTTP/1.1 request, including idle time between requests.
    pub header_read: Duration,
    /// Concurrent connections of one address; more are closed at once.
    pub per_address: usize,
    /// A connection without requests is closed after this time.
    pub idle: Duration,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// How long requests may run after the stop.
    pub grace: Duration,
}

impl Limits {
    /// For servers with few clients.
    pub const STANDARD: Self = Self {
        connections: 1024,
        // All users of a single host have the same one.
        per_address: 512,
        idle: Duration::from_mins(3),
        handshake: Duration::from_secs(10),
        header_read: Duration::from_secs(90),
        streams: 250,
        grace: Duration::from_secs(5),
    };
}

/// A listening socket with its TLS settings and its router.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    tls: TlsSource,
    router: Router,
    limits: Limits,
}

impl Server {
    pub fn new(listener: TcpListener, tls: TlsSource, router: Router) -> Self {
        Self {
            listener,
            tls,
            router,
            limits: Limits::STANDARD,
        }
    }

    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, then waits for running requests within the grace time.
    pub async fn run(self, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let slots = Arc::new(Semaphore::new(self.limits.connections));
        let addresses = Addresses::default();
        let shared = Arc::new(Shared {
            tls: self.tls,
            router: self.router,
            http: http_server(&self.limits),
            limits: self.limits,
            stop,
        });
        loop {
            let accepted = tokio::select! {
                biased;
                () = shared.stop.cancelled() => break,
                accepted = accept(&self.listener, &slots) => accepted,
            };
            match accepted {
                Ok((stream, address, slot)) => {
                    let per_address = shared.limits.per_address;
                    let Some(place) = addresses.enter(address.ip(), per_address) else {
                        tracing::debug!(%address, per_address, "too many connections of this address");
                        continue;
                    };
                    let shared = Arc::clone(&shared);
                    connections.spawn(async move {
                        let served = panics::confined(shared.connection(stream, address)).await;
                        if let Err(panicked) = served {
                            tracing::warn!(%address, %panicked, "connection ended");
                        }
                        drop((slot, place));
                    });
                }
                Err(error) => {
                    // Out of descriptors or memory: the kernel queues the client, and a tight loop would only
                    // make it worse.
                    tracing::warn!(%error, "accept failed");
                    time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(self.listener);
        connections.close();
        connections.wait().await;
    }
}

struct Shared {
    tls: TlsSource,
    router: Router,
    http: auto::Builder<Tasks>,
    limits: Limits,
    stop: CancellationToken,
}

impl Shared {
    async fn connection(&self, stream: TcpStream, address: SocketAddr) {
        let handshake = TlsAcceptor::from(self.tls.current()).accept(stream);
        let stream = tokio::select! {
            () = self.stop.cancelled() => return,
            done = time::timeout(self.limits.handshake, handshake) => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "TLS handshake failed");
                    return;
                }
                Err(_) => {
                    tracing::debug!(%address, "TLS handshake timed out");
                    return;
                }
            },
        };
        let peer = Peer {
            address,
            certificate: certificate(&stream),
        };
        self.serve(stream, peer).await;
    }

    async fn serve(&self, stream: TlsStream<TcpStream>, peer: Peer) {
        let address = peer.address;
        let activity = Activity::new();
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            let routed = panics::confined(self.router.clone().oneshot(request));
            let busy = activity.begin();
            async move {
                let response = match routed.await {
                    Ok(Ok(response)) => response,
                    Err(_panicked) => panic_response(),
                };
                Ok::<_, Infallible>(response.map(|body| hold(body, busy)))
            }
        });
        let mut connection = pin!(
            self.http
                .serve_connection_with_upgrades(TokioIo::new(stream), service)
        );
        let over = async {
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = activity.idle(self.limits.idle) => tracing::debug!(%address, "idle connection"),
            }
        };
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = over => {
                connection.as_mut().graceful_shutdown();
                match time::timeout(self.limits.grace, connection).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, error, "connection ended");
        }
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots)
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    // Small responses must not wait for the peer's delayed acknowledgement.
    stream.set_nodelay(true)?;
    Ok((stream, address, slot))
}

/// For a router that does not answer panics itself.
fn panic_response() -> Response<Body> {
    let text = "the server panicked while it served this request: report the message in its log\n";
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// Runs what the HTTP library starts for a connection: each request of HTTP/2.
#[derive(Debug, Clone, Copy)]
struct Tasks;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        let confined = panics::confined(future);
        TokioExecutor::new().execute(async move {
            // The log has the panic; the client sees that its request ends.
            confined.await.ok();
        });
    }
}

fn http_server(limits: &Limits) -> auto::Builder<Tasks> {
    let mut http = auto::Builder::new(Tasks);
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    http
}

fn certificate(stream: &TlsStream<TcpStream>) -> Option<PeerCertificate> {
    let (_, session) = stream.get_ref();
    PeerCertificate::parse(session.peer_certificates()?.first()?)
}
