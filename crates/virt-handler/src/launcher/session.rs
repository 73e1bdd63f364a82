//! One pod's launcher, as long as the pod lasts: connect, listen, connect again.
//!
//! A session is a task that owns the connection. Everyone else reads its [`Link`] and sends it
//! requests. It survives the death of the launcher (which comes back under its guest) and ends
//! only when it is dropped.

use std::{collections::HashMap, sync::Arc, time::Duration};

use error_chain::error_chain;
use launcher_channel::{
    AgentQuestion, AgentReport, FrameError, FromLauncher, GuestState, MAX_FROM_LAUNCHER, Reply,
    Request, SOCKET_PATH, ToLauncher, read_frame, write_frame,
};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    appear,
    pace::Pace,
    peer::{Peer, PeerError},
};
use crate::{
    metrics,
    pods_dir::{PodUid, PodsDir},
};

/// How long a launcher may take to answer. Sync is the slowest: it makes disks and starts QEMU.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);
/// Where a broken connection is tried again even if nothing changed on disk.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Characters of a refusal; libvirt's longest are shorter.
const LONGEST_REFUSAL: usize = 1024;
/// Requests in flight towards one launcher: a reconcile and a handful of users' verbs.
const REQUESTS: usize = 8;

/// What is known of a launcher.
#[derive(Debug, Clone, Default)]
pub(crate) struct Link {
    /// The proven process, while connected.
    pub(crate) peer: Option<Arc<Peer>>,
    /// Counts connections: a new number means a launcher that has to be told everything again.
    pub(crate) connection: u64,
    /// The last state heard, also after the connection ended.
    pub(crate) state: Option<GuestState>,
    /// Since when there is no connection.
    pub(crate) silent_since: Option<Instant>,
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the pod's launcher is not connected")]
    NotConnected,
    #[error("the pod's launcher did not answer within {} s", ANSWER_WITHIN.as_secs())]
    TimedOut,
    #[error("the pod's launcher answered another question")]
    OtherAnswer,
    #[error("{message}")]
    Refused {
        reason: String,
        message: String,
        retry: bool,
    },
}

impl CallError {
    /// The value of the metric's label.
    fn label(&self) -> &'static str {
        match self {
            Self::NotConnected => "not_connected",
            Self::TimedOut => "timed_out",
            Self::OtherAnswer => "other_answer",
            Self::Refused { .. } => "refused",
        }
    }
}

/// A handle to a session's task.
#[derive(Debug)]
pub(crate) struct Session {
    link: watch::Receiver<Link>,
    calls: mpsc::Sender<Call>,
}

#[derive(Debug)]
struct Call {
    request: Request,
    answer: oneshot::Sender<Reply>,
}

impl Session {
    /// A handle, and the task to run. `changed` is called after every change of the link.
    pub(crate) fn new(
        pods: PodsDir,
        pod: PodUid,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (link_sender, link) = watch::channel(Link {
            silent_since: Some(Instant::now()),
            ..Link::default()
        });
        let (calls, requests) = mpsc::channel(REQUESTS);
        let task = Task {
            pods,
            pod,
            link: link_sender,
            changed: Box::new(changed),
        };
        (Self { link, calls }, task.run(requests))
    }

    pub(crate) fn link(&self) -> Link {
        self.link.borrow().clone()
    }

    /// Has the launcher do something; its guest's state afterwards.
    pub(crate) async fn call(&self, request: Request) -> Result<GuestState, CallError> {
        match self.exchange(request).await? {
            Reply::Done(state) => Ok(state),
            _ => Err(CallError::OtherAnswer),
        }
    }

    /// Asks the guest's agent.
    pub(crate) async fn ask_agent(
        &self,
        question: AgentQuestion,
    ) -> Result<AgentReport, CallError> {
        match self.exchange(Request::AskAgent(question)).await? {
            Reply::Agent(report) => Ok(*report),
            _ => Err(CallError::OtherAnswer),
        }
    }

    async fn exchange(&self, request: Request) -> Result<Reply, CallError> {
        let reply = self.exchange_unmeasured(request).await;
        metrics::LAUNCHER_REQUESTS
            .increment([reply.as_ref().map_or_else(CallError::label, |_| "done")]);
        reply
    }

    async fn exchange_unmeasured(&self, request: Request) -> Result<Reply, CallError> {
        if self.link.borrow().peer.is_none() {
            return Err(CallError::NotConnected);
        }
        let (answer, reply) = oneshot::channel();
        let call = async {
            self.calls.send(Call { request, answer }).await.ok()?;
            reply.await.ok()
        };
        match tokio::time::timeout(ANSWER_WITHIN, call).await {
            Err(_elapsed) => Err(CallError::TimedOut),
            Ok(None) => Err(CallError::NotConnected),
            Ok(Some(Reply::Refused {
                reason,
                message,
                retry,
            })) => Err(CallError::Refused {
                reason: cut(&reason),
                message: cut(&message),
                retry,
            }),
            Ok(Some(reply)) => Ok(reply),
        }
    }
}

/// A launcher that was taken over may refuse in a whole book, and conditions are written from it.
fn cut(text: &str) -> String {
    text.chars().take(LONGEST_REFUSAL).collect()
}

struct Task {
    pods: PodsDir,
    pod: PodUid,
    link: watch::Sender<Link>,
    changed: Box<dyn Fn() + Send + Sync>,
}

/// Why a connection ended or was never made.
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
}

impl Task {
    async fn run(self, mut requests: mpsc::Receiver<Call>) {
        let (volume, file) = ("sockets", socket_name());
        let path = self.pods.empty_dir(&self.pod, volume).join(file);
        loop {
            if let Err(err) = appear::appeared(&path).await {
                tracing::warn!(pod = self.pod.as_str(), "watch for the launcher: {err}");
                tokio::time::sleep(RETRY_AFTER).await;
            }
            if path.exists() {
                let ended = self.connection(volume, file, &mut requests).await;
                self.update(|link| {
                    link.peer = None;
                    link.silent_since.get_or_insert_with(Instant::now);
                });
                match ended {
                    Ended::Unused => return,
                    Ended::Broken(err @ ConnectionError::Peer(_)) => {
                        tracing::error!(pod = self.pod.as_str(), "{:#}", error_chain(&err));
                    }
                    Ended::Broken(err) => {
                        tracing::debug!(pod = self.pod.as_str(), "{:#}", error_chain(&err));
                    }
                }
                // The launcher makes its socket anew when it comes back.
                let wait = tokio::time::timeout(RETRY_AFTER, appear::replaced(&path)).await;
                drop(wait);
            }
            if requests.is_closed() {
                return;
            }
        }
    }

    async fn connection(
        &self,
        volume: &str,
        file: &str,
        requests: &mut mpsc::Receiver<Call>,
    ) -> Ended {
        match self.connect(volume, file).await {
            Ok(stream) => self.serve(stream, requests).await,
            Err(err) => Ended::Broken(err),
        }
    }

    async fn connect(&self, volume: &str, file: &str) -> Result<UnixStream, ConnectionError> {
        let stream = self.pods.open(&self.pod, volume)?.connect(file).await?;
        let peer = Arc::new(Peer::of(&stream, &self.pod)?);
        self.update(|link| {
            link.peer = Some(Arc::clone(&peer));
            link.connection += 1;
            link.silent_since = None;
        });
        Ok(stream)
    }

    async fn serve(&self, stream: UnixStream, requests: &mut mpsc::Receiver<Call>) -> Ended {
        let _counted = metrics::LAUNCHERS.hold([]);
        let (mut from, mut to) = stream.into_split();
        // Bounded like everything: reading ahead of the session by a few messages is plenty.
        let (heard, mut messages) = mpsc::channel(4);
        // Reading is a future of its own because a frame must never be cut in half.
        let reading = async move {
            let mut pace = Pace::new(Instant::now());
            loop {
                let read = read_frame::<FromLauncher>(&mut from, MAX_FROM_LAUNCHER).await;
                let message = match read {
                    Ok(Some(message)) => Ok(message),
                    Ok(None) => Err(ConnectionError::Closed),
                    Err(err) => Err(err.into()),
                };
                let last = message.is_err();
                if heard.send(message).await.is_err() || last {
                    return;
                }
                tokio::time::sleep(pace.count(Instant::now())).await;
            }
        };
        let talking = async {
            let mut waiting = HashMap::new();
            let mut last_id = 0;
            loop {
                tokio::select! {
                    message = messages.recv() => match message {
                        Some(Ok(message)) => self.on_message(message, &mut waiting),
                        Some(Err(err)) => return Ended::Broken(err),
                        None => return Ended::Broken(ConnectionError::Closed),
                    },
                    call = requests.recv() => {
                        let Some(Call { request, answer }) = call else { return Ended::Unused };
                        last_id += 1;
                        waiting.insert(last_id, answer);
                        let message = ToLauncher { id: last_id, request };
                        if let Err(err) = write_frame(&mut to, &message).await {
                            return Ended::Broken(err.into());
                        }
                    }
                }
            }
        };
        tokio::select! {
            ended = talking => ended,
            () = async { reading.await; std::future::pending().await } => unreachable_end(),
        }
    }

    fn on_message(
        &self,
        message: FromLauncher,
        waiting: &mut HashMap<u64, oneshot::Sender<Reply>>,
    ) {
        match message {
            FromLauncher::State(state) => self.learn(state),
            FromLauncher::Reply { id, reply } => {
                if let Reply::Done(state) = &reply {
                    self.learn(state.clone());
                }
                if let Some(answer) = waiting.remove(&id) {
                    // The asker may have given up; the state above is kept all the same.
                    let _given_up = answer.send(reply);
                }
            }
        }
    }

    /// What is no news wakes nobody.
    fn learn(&self, state: GuestState) {
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

enum Ended {
    /// Nobody holds the session any more.
    Unused,
    Broken(ConnectionError),
}

/// The reading future never resolves inside the `select!`.
fn unreachable_end() -> Ended {
    Ended::Broken(ConnectionError::Closed)
}

fn socket_name() -> &'static str {
    SOCKET_PATH.rsplit('/').next().unwrap_or(SOCKET_PATH)
}
