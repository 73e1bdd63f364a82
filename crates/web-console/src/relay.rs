//! A file on its way from a server to a browser.
//!
//! Invariants: a browser that takes nothing for a while, or far too little, loses the file, and its place is free;
//! a response ends well only if the server has sent all of the file.

use std::{io, pin::pin, time::Duration};

use axum::body::{Body, Bytes};
use futures::{StreamExt as _, stream};
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::remote::chunks;

/// Pieces that wait for the browser: one is sent while the next arrives.
const WAITING: usize = 2;
/// How long a browser may take for one piece. An export server waits no longer either.
const PATIENCE: Duration = Duration::from_mins(1);
/// Bytes that a browser takes in a second at least, on average. The time in which the server sends nothing does not
/// count: a compressed disk without content arrives slowly.
const RATE: u64 = 16 << 10;
/// How much longer a browser may take than that.
const GRACE: Duration = Duration::from_mins(2);

enum Piece {
    Bytes(Bytes),
    /// All bytes were sent. A channel that is closed without it belongs to a file that broke off.
    End,
}

/// A body that gets what arrives in the other one. `place` is dropped when that is over.
pub(crate) fn relayed<P: Send + 'static>(
    tasks: &TaskTracker,
    stop: CancellationToken,
    place: P,
    body: Body,
) -> Body {
    let (sender, receiver) = mpsc::channel(WAITING);
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            // The browser sees a failure as the end of the channel.
            _failed = pass(body, &sender) => {}
        }
        drop(place);
    });
    let next = |receiver: Option<mpsc::Receiver<Piece>>| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(receiver))),
            Some(Piece::End) => None,
            None => {
                let broken = io::Error::from(io::ErrorKind::UnexpectedEof);
                Some((Err(broken), None))
            }
        }
    };
    Body::from_stream(stream::unfold(Some(receiver), next))
}

async fn pass(body: Body, sender: &mpsc::Sender<Piece>) -> io::Result<()> {
    let mut arriving = pin!(chunks(body));
    let (mut waited, mut passed) = (Duration::ZERO, 0_u64);
    loop {
        let next = tokio::select! {
            () = sender.closed() => return Err(io::ErrorKind::BrokenPipe.into()),
            next = arriving.next() => next,
        };
        let Some(bytes) = next.transpose()? else {
            return send(sender, Piece::End).await;
        };
        passed = passed.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let began = Instant::now();
        send(sender, Piece::Bytes(bytes)).await?;
        waited = waited.saturating_add(began.elapsed());
        if waited > GRACE.saturating_add(Duration::from_secs(passed / RATE)) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

async fn send(sender: &mpsc::Sender<Piece>, piece: Piece) -> io::Result<()> {
    match time::timeout(PATIENCE, sender.send(piece)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::Stream;
    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    type Sent = io::Result<Bytes>;

    /// A body that gets these pieces, and the place that it holds.
    fn relay(sent: impl Stream<Item = Sent> + Send + 'static) -> (Body, Arc<Semaphore>) {
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let body = relayed(&tasks, stop, place, Body::from_stream(sent));
        (body, places)
    }

    fn pieces(count: usize) -> impl Stream<Item = Sent> + Send + 'static {
        stream::iter((0..count).map(|_| Ok(Bytes::from_static(&[7; 1024]))))
    }

    #[tokio::test(start_paused = true)]
    async fn file_is_whole_or_broken_off() {
        let (body, places) = relay(pieces(100));
        let whole = body.collect().await.unwrap().to_bytes();
        assert_eq!(whole.len(), 100 << 10);
        let place = places.acquire().await;
        assert!(place.is_ok());
        let cut: Sent = Err(io::ErrorKind::ConnectionReset.into());
        let (body, _) = relay(pieces(3).chain(stream::iter([cut])));
        assert!(body.collect().await.is_err());
        let (body, _) = relay(pieces(3).chain(stream::pending()));
        assert!(body.collect().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn browser_that_reads_nothing_loses_its_place() {
        let (body, places) = relay(pieces(100));
        let began = Instant::now();
        let place = places.acquire().await;
        assert!(place.is_ok());
        assert!(began.elapsed() < PATIENCE + Duration::from_secs(1));
        assert!(body.collect().await.is_err());
        let (body, places) = relay(stream::pending());
        drop(body);
        let began = Instant::now();
        let place = places.acquire().await;
        assert!(place.is_ok());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn browser_that_reads_too_slowly_loses_its_place() {
        let (body, _places) = relay(pieces(1000));
        let mut arriving = body.into_data_stream();
        let mut read = 0;
        while let Some(Ok(_)) = arriving.next().await {
            read += 1;
            time::advance(PATIENCE / 2).await;
        }
        assert!((1..20).contains(&read), "{read}");
    }
}
