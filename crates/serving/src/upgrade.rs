//! Forwarding an upgrade: copies bytes between two upgraded connections.
//!
//! Invariant: bytes are not interpreted or changed, for any protocol.

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
};
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

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
    mut response: Response<B>,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response.map(Body::new);
    }
    let server = hyper::upgrade::on(&mut response);
    tasks.spawn(async move {
        let copied = tokio::select! {
            () = stop.cancelled() => return,
            copied = copy(caller, server) => copied,
        };
        if let Err(error) = copied {
            tracing::debug!(error, "upgraded connection ended");
        }
    });
    response.map(|_| Body::empty())
}

async fn copy(
    caller: OnUpgrade,
    server: OnUpgrade,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (caller, server) = tokio::try_join!(caller, server)?;
    tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut TokioIo::new(server)).await?;
    Ok(())
}
