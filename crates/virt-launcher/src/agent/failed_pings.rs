//! How the program `virt-probe` reports a failed ping of the guest agent to the launcher, which counts
//! them for virt-handler.
//!
//! **Invariants**: a report is a datagram, so that neither end waits for the other; reports that come
//! faster than probes can are counted as one.

use std::io;
use std::os::unix::net;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::time::Instant;

use crate::file;

/// No probe has a shorter period.
const PERIOD: Duration = Duration::from_secs(1);

/// The launcher's end.
#[derive(Debug)]
pub(crate) struct FailedPings {
    socket: Option<UnixDatagram>,
    count: u32,
    next: Instant,
}

impl FailedPings {
    /// Listens at `path`, in place of a socket that an earlier launcher left. Without the socket, failed
    /// pings are not counted.
    pub(crate) fn listen(path: &Path) -> Self {
        let bound = file::beside(path).and_then(|fresh| {
            let socket = UnixDatagram::bind(&fresh)?;
            std::fs::rename(&fresh, path)?;
            Ok(socket)
        });
        let socket = bound
            .inspect_err(|error| {
                tracing::warn!(%error, "failed pings of the guest agent cannot be counted");
            })
            .ok();
        Self {
            socket,
            count: 0,
            next: Instant::now(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns when the count has risen.
    pub(crate) async fn rises(&mut self) {
        let Some(socket) = &self.socket else {
            return std::future::pending().await;
        };
        loop {
            match socket.recv(&mut [0]).await {
                Ok(_) if Instant::now() < self.next => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "failed pings of the guest agent are no longer counted");
                    return std::future::pending().await;
                }
            }
        }
        self.next = Instant::now() + PERIOD / 2;
        self.count = self.count.saturating_add(1);
    }
}

/// Reports a failed ping. No launcher may be there to count it.
pub(super) fn report(path: &Path) -> io::Result<()> {
    let socket = net::UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(&[0], path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_are_counted_and_floods_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("launcher/pings.sock");
        assert!(report(&path).is_err());
        let mut pings = FailedPings::listen(&path);
        // The socket of an earlier launcher is replaced.
        drop(std::mem::replace(&mut pings, FailedPings::listen(&path)));
        for _ in 0..3 {
            report(&path).unwrap();
        }
        pings.rises().await;
        assert_eq!(pings.count(), 1);
        let more = tokio::time::timeout(PERIOD / 4, pings.rises());
        assert!(more.await.is_err());
        pings.next = Instant::now();
        report(&path).unwrap();
        pings.rises().await;
        assert_eq!(pings.count(), 2);
    }
}
