//! Passing an upgrade through: two upgraded connections become one pipe of bytes.
//!
//! Invariant: bytes pass unread and unchanged, whatever protocol they speak.

use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Whether these request headers ask for another protocol.
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

/// Takes the promise of an upgrade out of a request, before the request is sent on.
pub fn take<B>(request: &mut Request<B>) -> OnUpgrade {
    hyper::upgrade::on(request)
}

/// If `answer` switches protocols, copies bytes both ways until one side ends or `stop`. The answer
/// that the caller must send on has no body then. Other answers pass as they are.
pub fn join(
    caller: OnUpgrade,
    mut answer: Response<Incoming>,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> Response<axum::body::Body> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return answer.map(axum::body::Body::new);
    }
    let server = hyper::upgrade::on(&mut answer);
    tasks.spawn(async move {
        let copied = tokio::select! {
            () = stop.cancelled() => return,
            copied = copy(caller, server) => copied,
        };
        if let Err(error) = copied {
            tracing::debug!(error, "upgraded connection ended");
        }
    });
    answer.map(|_| axum::body::Body::empty())
}

async fn copy(
    caller: OnUpgrade,
    server: OnUpgrade,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (caller, server) = tokio::try_join!(caller, server)?;
    tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut TokioIo::new(server)).await?;
    Ok(())
}
