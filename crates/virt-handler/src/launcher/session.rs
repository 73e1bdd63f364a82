//! The session with one pod's launcher, for the life of the pod.
//!
//! A session is a task that owns the connection. Everything else reads its [`Link`] and sends it
//! requests. It survives restarts of the launcher and ends only when it is dropped.

use std::{sync::Arc, time::Duration};

use launcher_channel::{AgentQuestion, AgentReport, GuestState, Request};
use reasons::Reason;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tracing::Instrument as _;

use super::{
    answer::{Answer, Content, MAX_CONTENT},
    connection::SessionTask,
    peer::Peer,
};
use crate::{
    metrics,
    pods_dir::{PodUid, PodsDir},
};

/// Time limit of a request. Sync is the slowest: it creates disks and starts QEMU.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Concurrent requests to one launcher: a reconcile and a few users' verbs.
const MAX_REQUESTS: usize = 8;

/// The observed state of a launcher.
#[derive(Debug, Clone, Default)]
pub(crate) struct Link {
    /// The authenticated process, while connected.
    pub(crate) peer: Option<Arc<Peer>>,
    /// Counts connections: over a new connection the guest must be synced again.
    pub(crate) connection: u64,
    /// The last reported state, also after the connection ended.
    pub(crate) state: Option<GuestState>,
    /// Since when there is no connection.
    pub(crate) disconnected_since: Option<Instant>,
}

/// Why a request to a launcher failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the pod's launcher is not connected")]
    NotConnected,
    #[error("the pod's launcher did not respond within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the pod's launcher sent an unexpected reply")]
    UnexpectedReply,
    #[error("the pod's launcher sent more than {} MiB", MAX_CONTENT >> 20)]
    TooLarge,
    #[error("{message}")]
    Refused {
        reason: String,
        message: String,
        transient: bool,
    },
}

impl CallError {
    /// The value of the metric's label.
    fn label(&self) -> &'static str {
        match self {
            Self::NotConnected => "not_connected",
            Self::TimedOut => "timed_out",
            Self::UnexpectedReply => "unexpected_reply",
            Self::TooLarge => "too_large",
            Self::Refused { .. } => "refused",
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NotConnected | Self::TimedOut | Self::UnexpectedReply | Self::TooLarge => true,
            // A launcher of another version may send a reason that is unknown here.
            Self::Refused {
                reason, transient, ..
            } => {
                *transient
                    || reason
                        .parse::<Reason>()
                        .is_ok_and(|known| !known.is_permanent())
            }
        }
    }
}

/// A handle to a session's task.
#[derive(Debug)]
pub(crate) struct Session {
    link: watch::Receiver<Link>,
    calls: mpsc::Sender<Call>,
}

/// A request with the channel for its reply.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Result<Answer, CallError>>,
}

impl Session {
    /// A handle, and the task to run. `changed` is called after every change of the link.
    pub(crate) fn new(
        pods: PodsDir,
        pod: PodUid,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (link_sender, link) = watch::channel(Link {
            disconnected_since: Some(Instant::now()),
            ..Link::default()
        });
        let (calls, requests) = mpsc::channel(MAX_REQUESTS);
        let span = tracing::info_span!("launcher", pod = pod.as_str());
        let task = SessionTask::new(pods, pod, link_sender, Box::new(changed));
        (Self { link, calls }, task.run(requests).instrument(span))
    }

    pub(crate) fn link(&self) -> Link {
        self.link.borrow().clone()
    }

    /// Sends a command; returns the guest's state after it.
    pub(crate) async fn call(&self, request: Request) -> Result<GuestState, CallError> {
        match self.exchange(request).await? {
            Answer::State(state) => Ok(state),
            Answer::Agent(_) | Answer::Content(_) => Err(CallError::UnexpectedReply),
        }
    }

    /// Queries the QEMU guest agent.
    pub(crate) async fn ask_agent(
        &self,
        question: AgentQuestion,
    ) -> Result<AgentReport, CallError> {
        match self.exchange(Request::AskAgent(question)).await? {
            Answer::Agent(report) => Ok(*report),
            Answer::State(_) | Answer::Content(_) => Err(CallError::UnexpectedReply),
        }
    }

    /// Requests binary content of this type; the launcher could send anything.
    pub(crate) async fn fetch(
        &self,
        request: Request,
        media_type: &str,
    ) -> Result<Vec<u8>, CallError> {
        match self.exchange(request).await? {
            Answer::Content(Content {
                media_type: sent,
                data,
            }) if sent == media_type => Ok(data),
            Answer::Content(_) | Answer::State(_) | Answer::Agent(_) => {
                Err(CallError::UnexpectedReply)
            }
        }
    }

    async fn exchange(&self, request: Request) -> Result<Answer, CallError> {
        let reply = self.exchange_uncounted(request).await;
        let result = reply.as_ref().map_or_else(CallError::label, |_| "done");
        metrics::LAUNCHER_REQUESTS.increment([result]);
        reply
    }

    async fn exchange_uncounted(&self, request: Request) -> Result<Answer, CallError> {
        if self.link.borrow().peer.is_none() {
            return Err(CallError::NotConnected);
        }
        let (sender, reply) = oneshot::channel();
        let call = Call {
            request,
            reply: sender,
        };
        let exchange = async {
            self.calls.send(call).await.ok()?;
            reply.await.ok()
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
            Err(_elapsed) => Err(CallError::TimedOut),
            Ok(None) => Err(CallError::NotConnected),
            Ok(Some(answer)) => answer,
        }
    }
}

#[cfg(test)]
impl Session {
    /// A session with a launcher that a test plays, and the task to run.
    pub(crate) fn scripted(
        link: watch::Receiver<Link>,
        mut respond: impl FnMut(Request) -> Result<GuestState, CallError> + Send + 'static,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (calls, mut requests) = mpsc::channel::<Call>(MAX_REQUESTS);
        let task = async move {
            while let Some(call) = requests.recv().await {
                // A virt-handler that was killed does not read the answer.
                let answer = respond(call.request).map(Answer::State);
                drop(call.reply.send(answer));
            }
        };
        (Self { link, calls }, task)
    }
}
