//! Data that the server sends after the reply to a call.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::frame::Status;
use crate::{Connection, Error, ProtocolError, RemoteError};

/// Bytes that a stream may buffer. The protocol has no flow control, so a slower reader loses the
/// stream.
const MAX_UNREAD: usize = 32 << 20;

/// An open stream. If it is dropped before its end, it is aborted.
#[derive(Debug)]
pub(crate) struct Stream {
    connection: Connection,
    procedure: i32,
    serial: u32,
    chunks: Chunks,
    open: bool,
}

#[derive(Debug)]
enum Chunk {
    Data(Vec<u8>),
    /// The server has no more data; the client has to finish the stream.
    End,
    /// The server has finished the stream.
    Finished,
    Failed(Error),
}

/// The reading end of a [`Sink`]. The channel is unbounded because [`MAX_UNREAD`] bounds its bytes.
#[derive(Debug)]
pub(crate) struct Chunks {
    received: mpsc::UnboundedReceiver<Chunk>,
    unread: Arc<AtomicUsize>,
}

/// Receives the frames of one stream from the connection's reader.
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

    /// Takes one frame; `Break` after the last one.
    pub(crate) fn take(&self, status: Status, body: Vec<u8>) -> ControlFlow<()> {
        let chunk = match status {
            Status::Ok => Chunk::Finished,
            Status::Error => Chunk::Failed(match RemoteError::decode(&body) {
                Ok(error) => Box::new(error).into(),
                Err(error) => error.into(),
            }),
            Status::Continue if body.is_empty() => Chunk::End,
            Status::Continue => {
                let count = self.unread.fetch_add(body.len(), Ordering::Relaxed) + body.len();
                if count > MAX_UNREAD {
                    Chunk::Failed(
                        ProtocolError::TooMany {
                            count,
                            limit: MAX_UNREAD,
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

    /// Drops a stream whose call has failed: there is nothing to abort.
    pub(crate) fn discard_unopened(mut self) {
        self.open = false;
    }

    /// The next piece of data; `None` at its end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
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
            Some(Chunk::Failed(error)) => Err(error),
            None => Err(Error::Closed),
        }
    }

    /// Finishes the stream and waits for the server's confirmation.
    async fn finish(mut self) -> Result<(), Error> {
        if !self.open {
            return Ok(());
        }
        self.connection
            .finish_stream(self.procedure, self.serial)
            .await?;
        let limit = self.connection.limit();
        let confirmed = async {
            while self.open {
                self.next().await?;
            }
            Ok(())
        };
        let ended = tokio::time::timeout(limit, confirmed).await;
        ended.unwrap_or(Err(Error::TimedOut {
            procedure: "the end of a stream",
            limit,
        }))
    }

    /// Reads to the end of the data, at most `limit` bytes, and finishes the stream.
    pub(crate) async fn read_to_end(mut self, limit: usize) -> Result<Vec<u8>, Error> {
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
