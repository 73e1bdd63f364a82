//! The task of a session: connects to the launcher, serves the connection, reconnects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use launcher_channel::{
    FrameError, FromLauncher, GuestState, MAX_FROM_LAUNCHER, Reply, Request, SOCKET_PATH,
    ToLauncher, read_frame, write_frame,
};
use tokio::{
    net::UnixStream,
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    answer::Pending,
    file_watch,
    peer::{Peer, PeerError},
    rate_limit::RateLimit,
    session::{Call, Link},
};
use crate::{
    failure_log::FailureLog,
    metrics,
    pods_dir::{PodUid, PodsDir},
};

/// Interval of connection attempts while nothing changes on disk.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);
/// The pod's volume that holds the launcher's socket.
const VOLUME: &str = "sockets";
/// Received messages that may wait for the session. Reading a few ahead is sufficient.
const READ_AHEAD: usize = 4;

/// Operations in the log.
const CONNECT: &str = "communicate with the launcher";
const AUTHENTICATE: &str = "authenticate the launcher";
const WATCH: &str = "watch the launcher's socket";

pub(super) struct SessionTask {
    pods: PodsDir,
    pod: PodUid,
    link: watch::Sender<Link>,
    changed: Box<dyn Fn() + Send + Sync>,
    /// The launcher was released: from now on a lost connection is expected.
    released: AtomicBool,
}

/// Why a connection could not be made or ended.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("connect to the launcher")]
    Connect(#[from] std::io::Error),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the launcher closed the connection")]
    Closed,
    /// What the launcher sent may be the reason, and must not end the sessions of others.
    #[error(transparent)]
    Panicked(#[from] panics::Panicked),
}

enum End {
    /// The session was dropped.
    Dropped,
    /// The connection failed.
    Failed(ConnectionError),
}

/// Logs of the operations that the task repeats.
struct Logs {
    connect: FailureLog,
    authenticate: FailureLog,
    watch: FailureLog,
}

impl SessionTask {
    pub(super) fn new(
        pods: PodsDir,
        pod: PodUid,
        link: watch::Sender<Link>,
        changed: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            pods,
            pod,
            link,
            changed,
            released: AtomicBool::new(false),
        }
    }

    pub(super) async fn run(self, mut requests: mpsc::Receiver<Call>) {
        let file = socket_name();
        let path = self.pods.empty_dir(&self.pod, VOLUME).join(file);
        let mut logs = Logs {
            connect: FailureLog::default(),
            // Another process at the socket may be an attack.
            authenticate: FailureLog::impatient(),
            watch: FailureLog::default(),
        };
        loop {
            if let Err(error) = file_watch::appeared(&path).await {
                logs.watch.failed(WATCH, &error);
                tokio::time::sleep(RECONNECT_INTERVAL).await;
            } else {
                logs.watch.succeeded(WATCH);
            }
            if path.exists() {
                let connection = self.connection(file, &mut requests, &mut logs);
                let end = panics::confined(connection).await;
                let end = end.unwrap_or_else(|panicked| End::Failed(panicked.into()));
                self.update(|link| {
                    link.peer = None;
                    link.disconnected_since.get_or_insert_with(Instant::now);
                });
                match end {
                    End::Dropped => return,
                    End::Failed(error) => self.log_failure(&error, &mut logs),
                }
                // The launcher recreates its socket when it restarts.
                let replaced = file_watch::replaced(&path);
                drop(tokio::time::timeout(RECONNECT_INTERVAL, replaced).await);
            }
            if requests.is_closed() {
                return;
            }
        }
    }

    fn log_failure(&self, error: &ConnectionError, logs: &mut Logs) {
        match error {
            ConnectionError::Peer(error) => logs.authenticate.failed(AUTHENTICATE, error),
            _ if self.released.load(Ordering::Relaxed) => {
                tracing::debug!(%error, "the released launcher is not connected");
            }
            _ => logs.connect.failed(CONNECT, error),
        }
    }

    async fn connection(
        &self,
        file: &str,
        requests: &mut mpsc::Receiver<Call>,
        logs: &mut Logs,
    ) -> End {
        match self.connect(file).await {
            Ok(stream) => {
                logs.authenticate.succeeded(AUTHENTICATE);
                self.serve(stream, requests, logs).await
            }
            Err(error) => End::Failed(error),
        }
    }

    async fn connect(&self, file: &str) -> Result<UnixStream, ConnectionError> {
        let stream = self.pods.open(&self.pod, VOLUME)?.connect(file).await?;
        let peer = Arc::new(Peer::of(&stream, &self.pod)?);
        self.update(|link| {
            link.peer = Some(Arc::clone(&peer));
            link.connection += 1;
            link.disconnected_since = None;
        });
        Ok(stream)
    }

    async fn serve(
        &self,
        stream: UnixStream,
        requests: &mut mpsc::Receiver<Call>,
        logs: &mut Logs,
    ) -> End {
        let _counted = metrics::LAUNCHERS.hold([]);
        let (mut from, mut to) = stream.into_split();
        let (received, mut messages) = mpsc::channel(READ_AHEAD);
        // Reading is a separate future because reading a frame must not be cancelled half-way.
        let reading = async move {
            let mut limit = RateLimit::new(Instant::now());
            loop {
                let read = read_frame::<FromLauncher>(&mut from, MAX_FROM_LAUNCHER).await;
                let message = match read {
                    Ok(Some(message)) => Ok(message),
                    Ok(None) => Err(ConnectionError::Closed),
                    Err(error) => Err(error.into()),
                };
                let last = message.is_err();
                if received.send(message).await.is_err() || last {
                    return;
                }
                tokio::time::sleep(limit.count(Instant::now())).await;
            }
        };
        let serving = async {
            let mut pending = Pending::default();
            let mut last_id = 0;
            loop {
                tokio::select! {
                    message = messages.recv() => match message {
                        Some(Ok(message)) => {
                            logs.connect.succeeded(CONNECT);
                            self.on_message(message, &mut pending);
                        }
                        Some(Err(error)) => return End::Failed(error),
                        None => return End::Failed(ConnectionError::Closed),
                    },
                    call = requests.recv() => {
                        let Some(Call { request, reply }) = call else { return End::Dropped };
                        if matches!(request, Request::Release) {
                            self.released.store(true, Ordering::Relaxed);
                        }
                        last_id += 1;
                        pending.insert(last_id, reply);
                        let message = ToLauncher { id: last_id, request };
                        if let Err(error) = write_frame(&mut to, &message).await {
                            return End::Failed(error.into());
                        }
                    }
                }
            }
        };
        tokio::select! {
            end = serving => end,
            // Reading ends first; serving still handles the messages that were read.
            end = async { reading.await; std::future::pending().await } => end,
        }
    }

    fn on_message(&self, message: FromLauncher, pending: &mut Pending) {
        match message {
            FromLauncher::State(state) => self.store_state(state),
            FromLauncher::Reply { id, reply } => {
                if let Reply::Done(state) = &reply {
                    self.store_state(state.clone());
                }
                pending.receive(id, reply);
            }
        }
    }

    /// Stores a reported state; an unchanged one triggers no reconcile.
    fn store_state(&self, state: GuestState) {
        let state = state.bounded();
        if self.link.borrow().state.as_ref() != Some(&state) {
            self.update(|link| link.state = Some(state));
        }
    }

    fn update(&self, change: impl FnOnce(&mut Link)) {
        self.link.send_modify(change);
        (self.changed)();
    }
}

fn socket_name() -> &'static str {
    SOCKET_PATH.rsplit('/').next().unwrap_or(SOCKET_PATH)
}
