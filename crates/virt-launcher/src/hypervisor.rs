//! The way to libvirtd: connecting, and what a fresh connection needs.

use std::path::Path;
use std::time::Duration;

use libvirt::{Connection, Error, EventKind, Events};
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

const URI: &str = "qemu:///session";
/// Process 1 holds the socket, so connecting succeeds at once and the first answer comes when
/// libvirtd is up, which takes some 30 ms, or seconds on a machine that starts many at once.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// An open connection that reports what happens to domains.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) events: Events,
}

impl Link {
    /// Events are asked for before anything is looked at, so that no change falls between.
    pub(crate) async fn open(socket: &Path, tasks: &TaskTracker) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket).await?;
        let (connection, driver, events) = libvirt::attach(stream);
        tasks.spawn(async move {
            let ended = driver.run().await;
            tracing::info!(%ended, "the connection to libvirtd ended");
        });
        let hasty = connection.with_limit(OPEN_LIMIT);
        hasty.open(URI).await?;
        for kind in [
            EventKind::Lifecycle,
            EventKind::IoError,
            EventKind::Watchdog,
            EventKind::AgentLifecycle,
            EventKind::ControlError,
        ] {
            hasty.subscribe(kind).await?;
        }
        Ok(Self { connection, events })
    }
}
