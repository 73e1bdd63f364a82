//! Opening a connection to libvirtd and subscribing to its events.

use std::path::Path;
use std::time::Duration;

use libvirt::{Connection, Error, EventKind, Events};
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

pub(crate) const URI: &str = "qemu:///session";
/// Process 1 holds the socket, so connecting succeeds at once and the first response comes when
/// libvirtd is up: after some 30 ms, or seconds on a node that starts many guests at once.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// An open connection and the events of its domains.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) events: Events,
}

impl Link {
    /// Subscribes before the first query, so that no change is missed in between.
    pub(crate) async fn open(socket: &Path, tasks: &TaskTracker) -> Result<Self, Error> {
        Self::open_within(OPEN_LIMIT, socket, tasks).await
    }

    /// The same with another limit for each call.
    pub(crate) async fn open_within(
        limit: Duration,
        socket: &Path,
        tasks: &TaskTracker,
    ) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket).await?;
        let (connection, driver, events) = libvirt::attach(stream);
        tasks.spawn(async move {
            let ended = driver.run().await;
            tracing::info!(%ended, "the connection to libvirtd ended");
        });
        let limited = connection.with_limit(limit);
        limited.open(URI).await?;
        for kind in [
            EventKind::Lifecycle,
            EventKind::IoError,
            EventKind::Watchdog,
            EventKind::AgentLifecycle,
            EventKind::ControlError,
            EventKind::DeviceRemoved,
        ] {
            limited.subscribe(kind).await?;
        }
        Ok(Self { connection, events })
    }
}
