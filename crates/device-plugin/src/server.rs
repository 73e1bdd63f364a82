//! The answering side of gRPC: one service behind one listener.

use std::{convert::Infallible, future::Future, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Frame, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Code, MAX_MESSAGE, Status,
    frame::{self, Pieces},
};

/// Conversations at once. The other end is one kubelet, or the plugins of one node.
const CONNECTIONS: usize = 64;
/// Streams at once in one of them.
const STREAMS: u32 = 16;
/// For a question to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failed accept, which means that descriptors have run out.
const BREATH: Duration = Duration::from_millis(100);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What a call is answered with: messages, framed already.
pub(crate) enum Answer {
    One(Bytes),
    Many(BoxStream<'static, Bytes>),
}

/// Answers calls by the path of their method.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    fn call(
        &self,
        method: &str,
        message: Bytes,
    ) -> impl Future<Output = Result<Answer, Status>> + Send;
}

/// Serves until `stop`.
pub(crate) async fn serve(listener: UnixListener, service: impl Service, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, service.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }
}

async fn connection(stream: UnixStream, service: impl Service) {
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(respond(request, service).await) }
    });
    let ended = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

async fn respond(request: Request<Incoming>, service: impl Service) -> Response<Body> {
    let method = request.uri().path().to_owned();
    let answer = match tokio::time::timeout(PATIENCE, question(request)).await {
        Ok(Ok(message)) => service.call(&method, message).await,
        Ok(Err(status)) => Err(status),
        Err(_elapsed) => Err(Status::new(
            Code::DeadlineExceeded,
            "the question did not arrive",
        )),
    };
    let messages = match answer {
        Ok(Answer::One(message)) => futures::stream::iter([message]).boxed(),
        Ok(Answer::Many(messages)) => messages,
        Err(status) => return refusal(&status),
    };
    let end = futures::stream::once(async { Frame::trailers(Status::trailers(Ok(()))) });
    let frames = messages
        .map(Frame::data)
        .chain(end)
        .map(Ok::<_, Infallible>);
    response(StreamBody::new(frames).boxed_unsync())
}

/// The one message of a call.
async fn question(request: Request<Incoming>) -> Result<Bytes, Status> {
    let body = Limited::new(request.into_body(), MAX_MESSAGE)
        .collect()
        .await
        .map_err(|error| Status::new(Code::ResourceExhausted, error.to_string()))?;
    let mut pieces = Pieces::default();
    pieces.add(&body.to_bytes());
    match pieces.next()? {
        Some(message) if pieces.is_empty() => Ok(message),
        _ => Err(Status::new(
            Code::InvalidArgument,
            "a call takes exactly one message",
        )),
    }
}

/// An answer without messages has its trailers where its headers are.
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

/// One message as an answer.
pub(crate) fn one(message: &impl prost::Message) -> Answer {
    Answer::One(frame::encode(message))
}

/// For a method that nobody here knows.
pub(crate) fn unknown(method: &str) -> Status {
    Status::new(Code::Unimplemented, format!("there is no method {method}"))
}
