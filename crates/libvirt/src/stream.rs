//! Data that belongs to a call and goes on after its answer.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::frame::Status;
use crate::{Connection, Error, ProtocolError, RemoteError};

/// What a stream may hold that nobody has read yet. The wire has no flow control of its own, so
/// a reader that falls behind further loses the stream.
const UNREAD: usize = 32 << 20;
/// One frame's worth, well under what the server accepts.
const CHUNK: usize = 128 << 10;

/// Both directions of an open stream. Dropped before its end, it is aborted.
#[derive(Debug)]
pub struct Stream {
    connection: Connection,
    procedure: i32,
    serial: u32,
    chunks: Chunks,
    open: bool,
}

#[derive(Debug)]
enum Chunk {
    Data(Vec<u8>),
    /// The server has no more data; the stream is still to be finished by the client.
    End,
    /// The server has let go of the stream.
    Finished,
    Failed(Error),
}

/// The reading end of a [`Sink`]. The channel counts no items because [`UNREAD`] bounds its bytes.
#[derive(Debug)]
pub(crate) struct Chunks {
    received: mpsc::UnboundedReceiver<Chunk>,
    unread: Arc<AtomicUsize>,
}

/// Where the connection's reader puts what comes for one stream.
#[derive(Debug)]
pub(crate) struct Sink {
    to: mpsc::UnboundedSender<Chunk>,
    unread: Arc<AtomicUsize>,
}

impl Sink {
    pub(crate) fn new() -> (Self, Chunks) {
        let (to, received) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        (
            Self {
                to,
                unread: Arc::clone(&unread),
            },
            Chunks { received, unread },
        )
    }

    /// Takes one frame; `Break` when no more may come.
    pub(crate) fn take(&self, status: Status, body: Vec<u8>) -> ControlFlow<()> {
        let chunk = match status {
            Status::Ok => Chunk::Finished,
            Status::Error => Chunk::Failed(match RemoteError::decode(&body) {
                Ok(err) => Box::new(err).into(),
                Err(err) => err.into(),
            }),
            Status::Continue if body.is_empty() => Chunk::End,
            Status::Continue => {
                let count = self.unread.fetch_add(body.len(), Ordering::Relaxed) + body.len();
                if count > UNREAD {
                    Chunk::Failed(
                        ProtocolError::TooMany {
                            count,
                            limit: UNREAD,
                        }
                        .into(),
                    )
                } else {
                    Chunk::Data(body)
                }
            }
        };
        let last = matches!(chunk, Chunk::Finished | Chunk::Failed(_));
        if self.to.send(chunk).is_err() || last {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl Stream {
    pub(crate) fn new(connection: Connection, procedure: i32, serial: u32, chunks: Chunks) -> Self {
        Self {
            connection,
            procedure,
            serial,
            chunks,
            open: true,
        }
    }

    /// The call that would have opened it failed: there is nothing to abort.
    pub(crate) fn never_opened(mut self) {
        self.open = false;
    }

    /// The next piece of data; `None` at the end of it.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.chunks.received.recv().await {
            Some(Chunk::Data(bytes)) => {
                self.chunks.unread.fetch_sub(bytes.len(), Ordering::Relaxed);
                Ok(Some(bytes))
            }
            Some(Chunk::End) => Ok(None),
            Some(Chunk::Finished) => {
                self.open = false;
                Ok(None)
            }
            Some(Chunk::Failed(err)) => Err(err),
            None => Err(Error::Closed),
        }
    }

    /// Sends data to the server.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        for chunk in bytes.chunks(CHUNK) {
            let part = (Status::Continue, chunk);
            self.connection
                .send_stream(self.procedure, self.serial, part)
                .await?;
        }
        Ok(())
    }

    /// Ends the stream and waits until the server has agreed.
    pub async fn finish(mut self) -> Result<(), Error> {
        if !self.open {
            return Ok(());
        }
        self.connection
            .send_stream(self.procedure, self.serial, (Status::Ok, &[]))
            .await?;
        let limit = self.connection.limit();
        let agreed = async {
            while self.open {
                self.next().await?;
            }
            Ok(())
        };
        let ended = tokio::time::timeout(limit, agreed).await;
        ended.unwrap_or(Err(Error::TimedOut {
            procedure: "the end of a stream",
            limit,
        }))
    }

    /// Reads to the end of the data, at most `limit` bytes, and finishes the stream.
    pub async fn read_to_end(mut self, limit: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        while let Some(chunk) = self.next().await? {
            let count = all.len() + chunk.len();
            if count > limit {
                return Err(ProtocolError::TooMany { count, limit }.into());
            }
            all.extend_from_slice(&chunk);
        }
        self.finish().await?;
        Ok(all)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.forget_stream(self.serial);
        if self.open {
            self.connection.abort_stream(self.procedure, self.serial);
        }
    }
}
