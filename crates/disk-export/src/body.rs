//! Bytes that a thread produces and a connection consumes.
//!
//! **Invariants**: a client that takes nothing for a while loses its connection, so that it holds no thread; a
//! response ends well only if its producer has said so: one that fails, gives up or panics breaks it off.

use std::io::{self, Write};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::stream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time;
use tokio_util::task::TaskTracker;

/// The size of a piece of a file.
pub(crate) const CHUNK: usize = 256 << 10;
/// Pieces that wait for the client: one is sent while the next is read.
const WAITING: usize = 2;
/// How long a client may take for one piece.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where a producer puts its bytes.
pub(crate) struct Sender {
    runtime: Handle,
    pieces: mpsc::Sender<Piece>,
}

enum Piece {
    Bytes(Bytes),
    Failure(io::Error),
    /// All bytes were sent. A channel that is closed without it belongs to a producer that did not finish.
    End,
}

impl Sender {
    /// Waits until the client has room. Blocks the thread.
    pub(crate) fn send(&self, piece: Bytes) -> io::Result<()> {
        self.pass(Piece::Bytes(piece))
    }

    fn pass(&self, piece: Piece) -> io::Result<()> {
        let sending = time::timeout(PATIENCE, self.pieces.send(piece));
        match self.runtime.block_on(sending) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// A response body that `produce` fills on a thread of its own. `permit` is released when that ends.
pub(crate) fn produced(
    tasks: &TaskTracker,
    permit: OwnedSemaphorePermit,
    produce: impl FnOnce(&Sender) -> io::Result<()> + Send + 'static,
) -> Body {
    let (pieces, receiver) = mpsc::channel(WAITING);
    let sender = Sender {
        runtime: Handle::current(),
        pieces,
    };
    tasks.spawn_blocking(move || {
        let last = match panics::catch_io(|| produce(&sender)) {
            Ok(()) => Piece::End,
            Err(error) => Piece::Failure(error),
        };
        // The client may be the reason for a failure, and then it does not get to know.
        let _told = sender.pass(last).is_ok();
        drop(permit);
    });
    let next = |receiver: Option<mpsc::Receiver<Piece>>| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(receiver))),
            Some(Piece::End) => None,
            Some(Piece::Failure(error)) => Some((Err(error), None)),
            None => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
        }
    };
    Body::from_stream(stream::unfold(Some(receiver), next))
}

/// Collects small writes into pieces. What was not flushed is lost.
pub(crate) struct Pieces<'a> {
    sender: &'a Sender,
    collected: BytesMut,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(sender: &'a Sender) -> Self {
        Self {
            sender,
            collected: BytesMut::with_capacity(CHUNK),
        }
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.collected.extend_from_slice(bytes);
        if self.collected.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.collected.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.collected, BytesMut::with_capacity(CHUNK));
        self.sender.send(piece.freeze())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    /// The body, or none if it broke off.
    async fn collect(
        produce: impl FnOnce(&Sender) -> io::Result<()> + Send + 'static,
    ) -> Option<Bytes> {
        let permits = Arc::new(Semaphore::new(1));
        let permit = permits.try_acquire_owned().unwrap();
        let body = produced(&TaskTracker::new(), permit, produce);
        let collected = body.collect().await.ok()?;
        Some(collected.to_bytes())
    }

    fn piece() -> Bytes {
        Bytes::from_static(b"piece")
    }

    #[tokio::test]
    async fn body_ends_well_only_if_its_producer_does() {
        let whole = collect(|to| to.send(piece())).await;
        assert_eq!(whole, Some(piece()));
        assert_eq!(collect(|_| Ok(())).await, Some(Bytes::new()));
        let failed = collect(|to| {
            to.send(piece())?;
            Err(io::ErrorKind::InvalidData.into())
        });
        assert_eq!(failed.await, None);
        let ended = collect(|to| {
            to.send(piece())?;
            std::panic::resume_unwind(Box::new("the thread ends"))
        });
        assert_eq!(ended.await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_waited_too_long_does_not_get_a_whole_body() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
        let body = produced(&TaskTracker::new(), permit, |to| {
            (0..=WAITING).try_for_each(|_| to.send(piece()))
        });
        // Neither the last piece nor the failure finds room. A clock does not advance by itself beside a thread.
        while permits.available_permits() == 0 {
            time::advance(PATIENCE).await;
        }
        assert!(body.collect().await.is_err());
    }
}
