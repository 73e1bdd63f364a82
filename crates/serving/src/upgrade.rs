//! Forwarding an upgrade: copies bytes between two upgraded connections.
//!
//! Invariant: bytes are not interpreted or changed, for any protocol.

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
pub use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::hold;

/// Whether these request headers request another protocol.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
        && headers.get_all(header::CONNECTION).iter().any(|value| {
            value.to_str().is_ok_and(|value| {
                value
                    .split(',')
                    .any(|part| part.trim().eq_ignore_ascii_case("upgrade"))
            })
        })
}

/// Takes the future upgrade out of a request, before the request is forwarded.
pub fn take<B>(request: &mut Request<B>) -> OnUpgrade {
    hyper::upgrade::on(request)
}

/// If `response` switches protocols, copies bytes in both directions until one side ends or `stop`, and returns
/// it without a body. Returns other responses unchanged.
pub fn join<B>(
    caller: OnUpgrade,
    response: Response<B>,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    join_holding(caller, response, tasks, stop, ())
}

/// As [`join`]. Drops the guard when the copying has ended, or the other response was sent.
pub fn join_holding<B, G>(
    caller: OnUpgrade,
    mut response: Response<B>,
    tasks: &TaskTracker,
    stop: CancellationToken,
    guard: G,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    G: Send + Unpin + 'static,
{
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response.map(|body| hold(Body::new(body), guard));
    }
    let server = hyper::upgrade::on(&mut response);
    tasks.spawn(async move {
        let _guard = guard;
        let copied = tokio::select! {
            () = stop.cancelled() => return,
            copied = panics::confined(copy(caller, server)) => copied,
        };
        if let Err(error) = copied.unwrap_or_else(|panicked| Err(panicked.into())) {
            tracing::debug!(error, "upgraded connection ended");
        }
    });
    response.map(|_| Body::empty())
}

/// A request without a body for an upgrade to this protocol.
pub fn request(path: &str, protocol: &'static str) -> Result<Request<Body>, http::Error> {
    Request::builder()
        .uri(path)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, protocol)
        .body(Body::empty())
}

/// The response that accepts an upgrade to this protocol.
pub fn accept(protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(protocol));
    response
}

/// Copies bytes in both directions between an upgraded connection and another stream, until both
/// directions have ended. A panic is an error.
pub async fn carry<S>(upgrade: OnUpgrade, mut stream: S) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let copied = panics::confined(async move {
        let mut upgraded = TokioIo::new(upgrade.await?);
        tokio::io::copy_bidirectional(&mut upgraded, &mut stream).await?;
        Ok(())
    });
    copied.await?
}

/// The connection behind a response that accepts an upgrade.
pub fn of_response<B>(response: &mut Response<B>) -> OnUpgrade {
    hyper::upgrade::on(response)
}

async fn copy(
    caller: OnUpgrade,
    server: OnUpgrade,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (caller, server) = tokio::try_join!(caller, server)?;
    tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut TokioIo::new(server)).await?;
    Ok(())
}
