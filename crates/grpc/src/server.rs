//! The gRPC server: one service behind one listener.

use std::{convert::Infallible, future::Future, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Frame, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Code, MAX_MESSAGE, Status,
    frame::{self, FrameBuffer},
};

/// Concurrent connections. The clients are one kubelet, the plugins of one node, or a launcher.
const CONNECTIONS: usize = 64;
/// Bounds for peers that are other components.
const OF_COMPONENTS: Limits = Limits {
    streams: 16,
    message: MAX_MESSAGE,
};
/// Time limit for a request to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, which means that file descriptors are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The response to a call: encoded frames.
#[expect(
    missing_debug_implementations,
    reason = "a stream of responses has none"
)]
pub enum Reply {
    Unary(Bytes),
    Stream(BoxStream<'static, Bytes>),
}

/// Handles calls by the path of their method.
pub trait Service: Clone + Send + Sync + 'static {
    fn call(
        &self,
        method: &str,
        message: Bytes,
    ) -> impl Future<Output = Result<Reply, Status>> + Send;
}

/// Bounds of one connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Concurrent calls.
    pub streams: u32,
    /// The largest request, in bytes.
    pub message: usize,
}

/// Serves until `stop`.
pub async fn serve(listener: UnixListener, service: impl Service, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, service.clone(), OF_COMPONENTS));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

/// Serves one connection until its peer closes it.
pub async fn serve_connection<S>(stream: S, service: impl Service, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handler = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(respond(request, service, limits.message).await) }
    });
    let ended = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(limits.streams)
        .serve_connection(TokioIo::new(stream), handler)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}

async fn respond(
    request: Request<Incoming>,
    service: impl Service,
    largest: usize,
) -> Response<Body> {
    let method = request.uri().path().to_owned();
    let message = request_message(request, largest);
    let reply = match tokio::time::timeout(REQUEST_TIMEOUT, message).await {
        Ok(Ok(message)) => service.call(&method, message).await,
        Ok(Err(status)) => Err(status),
        Err(_elapsed) => Err(Status::new(
            Code::DeadlineExceeded,
            "the request did not arrive in time",
        )),
    };
    let messages = match reply {
        Ok(Reply::Unary(message)) => futures::stream::iter([message]).boxed(),
        Ok(Reply::Stream(messages)) => messages,
        Err(status) => return refusal(&status),
    };
    let end = futures::stream::once(async { Frame::trailers(Status::trailers(Ok(()))) });
    let frames = messages
        .map(Frame::data)
        .chain(end)
        .map(Ok::<_, Infallible>);
    response(StreamBody::new(frames).boxed_unsync())
}

/// Reads the single message of a call.
async fn request_message(request: Request<Incoming>, largest: usize) -> Result<Bytes, Status> {
    let body = Limited::new(request.into_body(), largest)
        .collect()
        .await
        .map_err(|error| Status::new(Code::ResourceExhausted, error.to_string()))?;
    let mut frames = FrameBuffer::default();
    frames.add(&body.to_bytes());
    match frames.next()? {
        Some(message) if frames.is_empty() => Ok(message),
        _ => Err(Status::new(
            Code::InvalidArgument,
            "a call requires exactly one message",
        )),
    }
}

/// A response without messages carries its trailers in the headers.
fn refusal(status: &Status) -> Response<Body> {
    let mut response = response(http_body_util::Empty::new().boxed_unsync());
    response.headers_mut().extend(Status::trailers(Err(status)));
    response
}

fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A unary response.
pub fn unary(message: &impl prost::Message) -> Reply {
    Reply::Unary(frame::encode(message))
}

/// The status for an unimplemented method.
pub fn unimplemented(method: &str) -> Status {
    Status::new(Code::Unimplemented, format!("unknown method {method}"))
}
