//! The gRPC client.

use std::{marker::PhantomData, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http2::{SendRequest, handshake},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::UnixStream, task::JoinSet};

use crate::{
    Code, Status,
    frame::{self, FrameBuffer},
};

/// Time limit of a response, or of the start of a stream.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection; it is closed on drop.
#[derive(Debug)]
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// The task that drives the connection.
    _connection: JoinSet<()>,
}

impl Client {
    /// A client over a connected socket.
    pub async fn over(stream: UnixStream) -> Result<Self, Status> {
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| Status::unavailable(&error))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection failed");
            }
        });
        Ok(Self {
            sender,
            _connection: tasks,
        })
    }

    /// Calls a method with one response.
    pub async fn call<R: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<R, Status> {
        self.call_within(TIMEOUT, method, request).await
    }

    /// The same with another time limit.
    pub async fn call_within<R: Message + Default>(
        &self,
        limit: Duration,
        method: &str,
        request: &impl Message,
    ) -> Result<R, Status> {
        let request = frame::encode(request);
        let response = async {
            let mut responses = self.send::<R>(method, request).await?;
            let response = responses.next().await?;
            response.ok_or_else(|| Status::new(Code::Unknown, "the call had no response"))
        };
        with_timeout(limit, method, response).await
    }

    /// Calls a method with several responses.
    pub async fn stream<R: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<Streaming<R>, Status> {
        let request = frame::encode(request);
        with_timeout(TIMEOUT, method, self.send(method, request)).await
    }

    async fn send<R>(&self, method: &str, message: Bytes) -> Result<Streaming<R>, Status> {
        // As the kubelet does: a socket path is not a valid authority.
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://localhost{method}"))
            .header(CONTENT_TYPE, "application/grpc")
            .header("te", "trailers")
            .body(Full::new(message))
            .map_err(|error| Status::unavailable(&error))?;
        let mut sender = self.sender.clone();
        let response: Response<Incoming> = sender
            .send_request(request)
            .await
            .map_err(|error| Status::unavailable(&error))?;
        if let Some(status) = Status::of_http(&response) {
            return Err(status);
        }
        if let Some(Err(status)) = Status::read(response.headers()) {
            return Err(status);
        }
        Ok(Streaming {
            body: response.into_body(),
            frames: FrameBuffer::default(),
            response: PhantomData,
        })
    }
}

async fn with_timeout<T>(
    limit: Duration,
    method: &str,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_elapsed) => {
            let message = format!("{method} got no response within {} s", limit.as_secs());
            Err(Status::new(Code::DeadlineExceeded, message))
        }
    }
}

/// The response messages of one call.
#[derive(Debug)]
pub struct Streaming<R> {
    body: Incoming,
    frames: FrameBuffer,
    response: PhantomData<fn() -> R>,
}

impl<R: Message + Default> Streaming<R> {
    /// The next message; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<R>, Status> {
        loop {
            if let Some(message) = self.frames.next()? {
                return frame::decode(message).map(Some);
            }
            let Some(read) = self.body.frame().await else {
                return self.end();
            };
            let read = read.map_err(|error| Status::unavailable(&error))?;
            match read.into_data() {
                Ok(data) => self.frames.add(&data),
                Err(other) => {
                    if let Ok(trailers) = other.into_trailers()
                        && let Some(ended) = Status::read(&trailers)
                    {
                        return ended.map(|()| None);
                    }
                }
            }
        }
    }

    fn end(&self) -> Result<Option<R>, Status> {
        if self.frames.is_empty() {
            Ok(None)
        } else {
            let message = "the stream ended within a message";
            Err(Status::new(Code::Unavailable, message))
        }
    }
}
