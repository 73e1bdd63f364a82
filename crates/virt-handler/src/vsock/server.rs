//! Connections of guests to virt-handler.
//!
//! **Invariants**: a guest has few connections at once, each for a bounded time and of few bytes; how often guests
//! connect costs the node a bounded amount of work. A guest that connects all the time may keep others of its node from the answer, and
//! from nothing else.

use std::{io, sync::Arc, time::Duration};

use cluster_config::ClusterConfig;
use grpc::{Limits, serve_connection};
use host_net::VsockListener;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, join, split},
    net::UnixStream,
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    bundle::System,
    credentials::{GuestCredentials, VSOCK_GATE},
};

/// The port, as in `KubeVirt`.
const PORT: u32 = 1;
/// Interval of the attempts to listen.
const RETRY: Duration = Duration::from_mins(1);
/// Connections of all guests.
const CONNECTIONS: usize = 64;
/// Connections of a guest.
const OF_GUEST: usize = 2;
/// How long a connection may last: it is for one short answer.
pub(super) const LIFE: Duration = Duration::from_secs(10);
/// What is read of a connection, in bytes. A guest that sends frames without end costs the node no more.
pub(super) const MOST: u64 = 64 << 10;
/// Between two connections.
const PAUSE: Duration = Duration::from_millis(5);
/// After a failed accept, as when file descriptors are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// A request is an empty message.
const LIMITS: Limits = Limits {
    streams: 2,
    message: 1 << 10,
};

/// Serves the guests of this node while the feature gate is on, until `stop`.
pub(crate) async fn serve_guests(
    mut cluster: watch::Receiver<Arc<ClusterConfig>>,
    credentials: watch::Receiver<Option<GuestCredentials>>,
    stop: CancellationToken,
) {
    let system = System { credentials };
    let serving = async {
        let mut attempts = Attempts::default();
        loop {
            if wait_for_gate(&mut cluster, true).await.is_err() {
                return;
            }
            let mut changes = cluster.clone();
            tokio::select! {
                () = listen(&system, &mut attempts) => {}
                closed = wait_for_gate(&mut changes, false) => {
                    if closed.is_err() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = serving => {}
        () = stop.cancelled() => {}
    }
}

/// Waits until the feature gate is on or off. An error means that there will be no further changes.
async fn wait_for_gate(
    cluster: &mut watch::Receiver<Arc<ClusterConfig>>,
    on: bool,
) -> Result<(), watch::error::RecvError> {
    let reached = cluster.wait_for(|config| config.has_gate(VSOCK_GATE) == on);
    reached.await.map(drop)
}

/// Listens; returns after the pause that follows a failure.
async fn listen(system: &System, attempts: &mut Attempts) {
    match VsockListener::bind(PORT).await {
        Ok(listener) => {
            attempts.succeeded();
            accept(&listener, system).await;
        }
        Err(error) => {
            attempts.failed(&error);
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Logs the first failure alone: a node without a vsock stays without one, and gets no guests that use it.
#[derive(Debug, Default)]
struct Attempts {
    has_failed: bool,
}

impl Attempts {
    fn failed(&mut self, error: &io::Error) {
        if std::mem::replace(&mut self.has_failed, true) {
            tracing::debug!(%error, "guests still cannot ask for the authorities over the vsock");
        } else {
            tracing::info!(
                %error,
                "guests cannot ask for the authorities over the vsock: the node has no /dev/vhost-vsock, or another \
                 program listens at port 1; trying again each minute"
            );
        }
    }

    fn succeeded(&mut self) {
        if std::mem::take(&mut self.has_failed) {
            tracing::info!("guests can ask for the authorities over the vsock");
        }
    }
}

async fn accept(listener: &VsockListener, system: &System) {
    let mut open = Open::default();
    loop {
        open.make_room().await;
        match listener.accept().await {
            Ok((stream, guest)) => open.serve(guest, stream, system),
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection of a guest");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The open connections.
#[derive(Debug, Default)]
struct Open {
    tasks: JoinSet<()>,
    /// The guests of the tasks that may still run, with the tokens that their tasks drop at their end.
    guests: Vec<(u32, std::sync::Weak<()>)>,
}

impl Open {
    /// Waits until another connection is permitted.
    async fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        while self.tasks.len() >= CONNECTIONS && self.tasks.join_next().await.is_some() {}
        self.guests.retain(|(_, alive)| alive.strong_count() > 0);
    }

    fn serve(&mut self, guest: u32, stream: UnixStream, system: &System) {
        let own = self.guests.iter().filter(|(one, _)| *one == guest).count();
        if own >= OF_GUEST {
            tracing::debug!(guest, "a guest has too many connections");
            return;
        }
        let alive = Arc::new(());
        self.guests.push((guest, Arc::downgrade(&alive)));
        let system = system.clone();
        self.tasks.spawn(async move {
            let _alive = alive;
            connection(stream, system).await;
        });
    }
}

/// One connection. A panic ends it alone.
pub(super) async fn connection<S>(stream: S, system: System)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (from, to) = split(stream);
    let bounded = join(from.take(MOST), to);
    let served = panics::confined(serve_connection(bounded, system, LIMITS));
    if tokio::time::timeout(LIFE, served).await.is_err() {
        tracing::debug!("the time of a guest's connection is over");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn system() -> System {
        System {
            credentials: watch::Sender::new(None).subscribe(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn guest_has_two_connections_at_once_for_ten_seconds() {
        let (system, mut open) = (system(), Open::default());
        let mut ends = Vec::new();
        for guest in [3, 3, 3, 4] {
            let (near, far) = UnixStream::pair().unwrap();
            open.serve(guest, near, &system);
            ends.push(far);
        }
        assert_eq!(open.tasks.len(), 3);
        // The third connection of the guest is closed at once.
        assert_eq!(ends[2].read(&mut [0]).await.unwrap(), 0);
        tokio::time::sleep(LIFE * 2).await;
        open.make_room().await;
        assert_eq!((open.tasks.len(), open.guests.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn all_guests_have_a_bounded_number_of_connections() {
        let (system, mut open) = (system(), Open::default());
        let mut ends = Vec::new();
        for guest in 0..64 {
            let (near, far) = UnixStream::pair().unwrap();
            open.make_room().await;
            open.serve(guest, near, &system);
            ends.push(far);
        }
        assert_eq!(open.tasks.len(), CONNECTIONS);
        let began = tokio::time::Instant::now();
        open.make_room().await;
        assert!(open.tasks.len() < CONNECTIONS);
        assert!(began.elapsed() >= LIFE - Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn gate_is_awaited() {
        let config = |gates: &[&str]| {
            let written = json!({"developerConfiguration": {"featureGates": gates}});
            Arc::new(ClusterConfig::from_kubevirt(
                &serde_json::from_value(written).unwrap(),
            ))
        };
        let sender = watch::Sender::new(config(&[]));
        let mut receiver = sender.subscribe();
        wait_for_gate(&mut receiver, false).await.unwrap();
        sender.send_replace(config(&[VSOCK_GATE]));
        wait_for_gate(&mut receiver, true).await.unwrap();
        drop(sender);
        wait_for_gate(&mut receiver, false).await.unwrap_err();
    }
}
