//! The gRPC server: one service behind one listener.

use std::{convert::Infallible, future::Future, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Frame, body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
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

/// What a peer may send before it is read, in bytes: at least what the protocol lets it send at first, at most the
/// window of the HTTP library.
const WINDOW: (u32, u32) = (65_535, 1 << 20);
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
    let window = u32::try_from(limits.message).unwrap_or(u32::MAX);
    let window = window.clamp(WINDOW.0, WINDOW.1);
    let ended = http2::Builder::new(Calls)
        .max_concurrent_streams(limits.streams)
        .initial_stream_window_size(window)
        .initial_connection_window_size(window)
        .serve_connection(TokioIo::new(stream), handler)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}

/// Runs the calls of a connection, which the HTTP library starts as tasks. A panic ends one call.
#[derive(Debug, Clone, Copy)]
struct Calls;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, future: F) {
        let confined = panics::confined(future);
        TokioExecutor::new().execute(async move {
            // The log has the panic; the client sees that its call ends.
            confined.await.ok();
        });
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

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::Client;

    const LIMITS: Limits = Limits {
        streams: 2,
        message: 1 << 10,
    };

    /// Answers with the message that it gets.
    #[derive(Clone)]
    struct Echo;

    impl Service for Echo {
        async fn call(&self, method: &str, message: Bytes) -> Result<Reply, Status> {
            assert_ne!(method, "/panic");
            let text: String = frame::decode(message)?;
            Ok(unary(&text))
        }
    }

    async fn client() -> Client {
        let (near, far) = UnixStream::pair().unwrap();
        TaskTracker::new().spawn(serve_connection(near, Echo, LIMITS));
        Client::over(far).await.unwrap()
    }

    async fn echo(client: &Client, method: &str, length: usize) -> Result<String, Status> {
        client.call(method, &"x".repeat(length)).await
    }

    #[tokio::test]
    async fn panic_ends_one_call() {
        let client = client().await;
        let before = panics::count();
        echo(&client, "/panic", 1).await.unwrap_err();
        assert_eq!(panics::count(), before + 1);
        assert_eq!(echo(&client, "/echo", 1).await.unwrap(), "x");
    }

    #[tokio::test]
    async fn request_above_the_limit_of_its_connection_is_refused() {
        let client = client().await;
        assert_eq!(echo(&client, "/echo", 1000).await.unwrap().len(), 1000);
        echo(&client, "/echo", 1100).await.unwrap_err();
    }
}
