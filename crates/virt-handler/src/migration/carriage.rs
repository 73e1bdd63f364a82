//! Carries the connections of a pod that a guest leaves to the guest's new pod: by the virt-handler of its
//! node, or directly if that is on the same node.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use axum::{BoxError, http::StatusCode};
use launcher_channel::{MigrationProgress, MigrationSocket};
use parking_lot::Mutex;
use reconcile::Key;
use serving::{
    ClientError, HttpsClient, Target,
    upgrade::{self, OnUpgrade},
};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    PROTOCOL, SOCKETS, endpoint, figures,
    limits::{Due, Limits, Watch},
};
use crate::{
    launcher::PeerError,
    pods_dir::{PodUid, PodsDir},
};

/// Time limit for the other node to accept a connection.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// How long the other node may be silent, or not read: at the hand-over the guest is paused meanwhile. The
/// other QEMU may wait for slow storage, so a few seconds are too short.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(15);
/// Bytes that are read at once between two pods of this node: few system calls, for the memory of a guest.
const BUFFER: usize = 256 << 10;
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections of one socket at a time: more than QEMU opens, which are one for each copied disk, and for memory one
/// besides those of [`launcher_channel::MAX_PARALLEL_CONNECTIONS`].
const MAX_FLOWS: usize = 64;

/// Whether the process at the other end of a socket belongs to the pod.
pub(super) type PeerCheck = fn(&UnixStream, &PodUid) -> Result<(), PeerError>;

/// The migrations of this node's guests that this process follows.
#[derive(Debug, Default)]
pub(crate) struct Migrations {
    followed: Mutex<HashMap<Key, Followed>>,
}

#[derive(Debug)]
struct Followed {
    uid: String,
    watch: Watch,
    /// Ends the carriage. `None` if an earlier virt-handler has begun the copy.
    _carriage: Option<DropGuard>,
}

/// Whether a copy is fast enough.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Why it has to end.
    pub(super) overrun: Option<String>,
    pub(super) due: Due,
}

impl Migrations {
    /// Forgets the migration of this guest and ends its carriage.
    pub(crate) fn remove(&self, key: &Key) {
        if self.followed.lock().remove(key).is_some() {
            figures::forget(key);
        }
    }

    /// Registers a carriage, which ends when the token is cancelled.
    pub(super) fn begin(&self, key: &Key, uid: &str) -> CancellationToken {
        let stop = CancellationToken::new();
        let followed = Followed {
            uid: uid.to_owned(),
            watch: Watch::new(Instant::now()),
            _carriage: Some(stop.clone().drop_guard()),
        };
        self.followed.lock().insert(key.clone(), followed);
        stop
    }

    /// Notes the progress of a copy.
    pub(super) fn observe(
        &self,
        key: &Key,
        uid: &str,
        limits: Limits,
        progress: Option<&MigrationProgress>,
    ) -> Pace {
        let now = Instant::now();
        let mut all = self.followed.lock();
        let fresh = || Followed {
            uid: uid.to_owned(),
            watch: Watch::new(now),
            _carriage: None,
        };
        let followed = all.entry(key.clone()).or_insert_with(fresh);
        if followed.uid != uid {
            *followed = fresh();
        }
        let overrun = followed.watch.observe(limits, progress, now);
        Pace {
            overrun: overrun.map(str::to_owned),
            due: followed.watch.due(),
        }
    }
}

/// The way from a pod to the pod that gets its guest.
#[derive(Debug)]
pub(super) struct Carriage {
    pub(super) way: Way,
    pub(super) pods_dir: PodsDir,
    pub(super) pod: PodUid,
    pub(super) check: PeerCheck,
}

#[derive(Debug)]
pub(super) enum Way {
    ToNode {
        peers: HttpsClient,
        target: Target,
        /// The path of the migration at the other node.
        path: String,
    },
    /// To the pod with this UID, on the same node.
    WithinNode(PodUid),
}

/// A carriage whose sockets exist.
#[derive(Debug)]
pub(super) struct Listening {
    carriage: Arc<Carriage>,
    listeners: Vec<(MigrationSocket, UnixListener)>,
}

/// Why a connection was not carried.
#[derive(Debug, thiserror::Error)]
enum CarryError {
    #[error("the socket of a migration was opened")]
    Peer(#[from] PeerError),
    #[error("connect to the other node")]
    Connect(#[from] ClientError),
    #[error("connect to the other pod")]
    Reach(#[source] io::Error),
    #[error("the other node did not accept the connection within {} s", OPEN_LIMIT.as_secs())]
    TimedOut,
    #[error("the other node refused the connection with code {0}")]
    Refused(StatusCode),
    #[error("build the request")]
    Request(#[source] BoxError),
    #[error("the connection has failed")]
    Flow(#[source] BoxError),
}

impl Carriage {
    /// Listens at all sockets of the pod.
    pub(super) fn listen(self) -> io::Result<Listening> {
        let volume = self.pods_dir.open(&self.pod, SOCKETS)?;
        let mut listeners = Vec::new();
        for socket in MigrationSocket::ALL {
            let name = file_name(&socket.source_path()).to_owned();
            listeners.push((socket, volume.listen(&name, kubevirt_api::RUNTIME_USER)?));
        }
        Ok(Listening {
            carriage: Arc::new(self),
            listeners,
        })
    }

    async fn accept(self: Arc<Self>, socket: MigrationSocket, listener: UnixListener) {
        let mut flows = JoinSet::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    while flows.try_join_next().is_some() {}
                    if flows.len() >= MAX_FLOWS {
                        flows.join_next().await;
                    }
                    flows.spawn(Arc::clone(&self).flow(socket, stream));
                }
                Err(error) => {
                    // Out of descriptors or memory, which passes, while nobody listens again.
                    tracing::warn!(socket = socket.name(), %error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn flow(self: Arc<Self>, socket: MigrationSocket, stream: UnixStream) {
        if let Err(error) = self.carry(socket, stream).await {
            // The launchers notice the lost connection. They report the end of the migration, or connect again.
            tracing::warn!(
                socket = socket.name(),
                error = error_chain::error_chain(&error),
                "a connection of a migration ended"
            );
        }
    }

    async fn carry(&self, socket: MigrationSocket, stream: UnixStream) -> Result<(), CarryError> {
        (self.check)(&stream, &self.pod)?;
        match &self.way {
            Way::ToNode {
                peers,
                target,
                path,
            } => {
                let upgraded = open(peers, target, &format!("{path}/{}", socket.name())).await?;
                upgrade::carry(upgraded, stream)
                    .await
                    .map_err(CarryError::Flow)
            }
            Way::WithinNode(pod) => {
                let other = endpoint::connect(&self.pods_dir, pod, socket, self.check);
                let other = other.await.map_err(CarryError::Reach)?;
                join(stream, other)
                    .await
                    .map_err(|error| CarryError::Flow(Box::new(error)))
            }
        }
    }
}

/// Opens a connection to the virt-handler of the other node.
async fn open(peers: &HttpsClient, target: &Target, path: &str) -> Result<OnUpgrade, CarryError> {
    let request =
        upgrade::request(path, PROTOCOL).map_err(|error| CarryError::Request(Box::new(error)))?;
    let sent = peers.send(target, request);
    let opened = tokio::time::timeout(OPEN_LIMIT, sent).await;
    let mut response = opened.map_err(|_elapsed| CarryError::TimedOut)??;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(CarryError::Refused(response.status()));
    }
    Ok(upgrade::of_response(&mut response))
}

/// Copies bytes both ways until both ends have closed.
async fn join(mut one: UnixStream, mut other: UnixStream) -> io::Result<()> {
    tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER, BUFFER).await?;
    Ok(())
}

impl Listening {
    /// Carries all connections until stopped.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut sockets = JoinSet::new();
        for (socket, listener) in self.listeners {
            sockets.spawn(Arc::clone(&self.carriage).accept(socket, listener));
        }
        let all = async { while sockets.join_next().await.is_some() {} };
        tokio::select! {
            () = stop.cancelled() => {}
            () = all => {}
        }
    }
}

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
