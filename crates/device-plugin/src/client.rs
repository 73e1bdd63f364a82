//! The asking side of gRPC.

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
    frame::{self, Pieces},
};

/// For an answer, or the begin of one.
const PATIENCE: Duration = Duration::from_secs(10);

/// A conversation; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// Moves the bytes.
    _connection: JoinSet<()>,
}

impl Client {
    pub(crate) async fn over(stream: UnixStream) -> Result<Self, Status> {
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| Status::unavailable(&error))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
        });
        Ok(Self {
            sender,
            _connection: tasks,
        })
    }

    pub(crate) async fn call<A: Message + Default>(
        &self,
        method: &'static str,
        question: &impl Message,
    ) -> Result<A, Status> {
        let question = frame::encode(question);
        let answer = async {
            let mut answers = self.ask::<A>(method, question).await?;
            let answer = answers.next().await?;
            answer.ok_or_else(|| Status::new(Code::Unknown, "the call was not answered"))
        };
        in_time(method, answer).await
    }

    pub(crate) async fn stream<A: Message + Default>(
        &self,
        method: &'static str,
        question: &impl Message,
    ) -> Result<Streaming<A>, Status> {
        let question = frame::encode(question);
        in_time(method, self.ask(method, question)).await
    }

    async fn ask<A>(&self, method: &str, question: Bytes) -> Result<Streaming<A>, Status> {
        // Kubelets name themselves so as well: a path is no authority.
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://localhost{method}"))
            .header(CONTENT_TYPE, "application/grpc")
            .header("te", "trailers")
            .body(Full::new(question))
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
            pieces: Pieces::default(),
            answer: PhantomData,
        })
    }
}

async fn in_time<T>(
    method: &str,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_elapsed) => {
            let message = format!("{method} was not answered within {} s", PATIENCE.as_secs());
            Err(Status::new(Code::DeadlineExceeded, message))
        }
    }
}

/// The answers to one call, as they come.
#[derive(Debug)]
pub struct Streaming<A> {
    body: Incoming,
    pieces: Pieces,
    answer: PhantomData<fn() -> A>,
}

impl<A: Message + Default> Streaming<A> {
    /// The next answer; `None` when the other end has said all.
    pub async fn next(&mut self) -> Result<Option<A>, Status> {
        loop {
            if let Some(message) = self.pieces.next()? {
                return frame::decode(message).map(Some);
            }
            let Some(read) = self.body.frame().await else {
                return self.end();
            };
            let read = read.map_err(|error| Status::unavailable(&error))?;
            match read.into_data() {
                Ok(data) => self.pieces.add(&data),
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

    fn end(&self) -> Result<Option<A>, Status> {
        if self.pieces.is_empty() {
            Ok(None)
        } else {
            let message = "the answer ended within a message";
            Err(Status::new(Code::Unavailable, message))
        }
    }
}
