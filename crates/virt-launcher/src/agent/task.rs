//! The task that talks to the agent: polls it, makes calls on demand and thaws in time.

use std::time::Duration;

use backoff::Backoff;
use error_chain::error_chain;
use launcher_channel::{Agent, AgentQuestion, Credential, FromLauncher, Reply};
use libvirt::{Connection, Domain};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::commands::{self, Transport};
use super::credentials::Credentials;
use super::freeze::{self, Effect, THAW_RETRY, THAW_RETRY_MAX};
use super::thaw::ThawTimer;

/// For one response. A guest under load is slow; one that never responds must not block.
const RESPONSE_SECONDS: u16 = 5;
/// For a freeze, which writes out all dirty data of the guest.
const FREEZE_SECONDS: u16 = 20;
/// Delays of the first polls: frequent at first, as a booting guest gets its addresses.
const FIRST_POLLS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(5),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
];
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Calls that may wait; the handler has few in flight.
pub(super) const MAX_WAITING: usize = 4;

/// A call from the handler, and the channel for its reply.
#[derive(Debug)]
pub(crate) struct AgentCall {
    pub(crate) id: u64,
    pub(crate) query: AgentQuestion,
    pub(crate) reply_to: mpsc::Sender<FromLauncher>,
}

/// What a task starts with.
#[derive(Debug)]
pub(crate) struct Initial {
    /// The report over an earlier connection, valid until the agent responds.
    pub(crate) report: Option<Agent>,
    pub(crate) thaw: ThawTimer,
    pub(crate) credentials: Vec<Credential>,
}

/// A handle to the task, which ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct AgentTask {
    pub(crate) report: watch::Receiver<Option<Agent>>,
    calls: mpsc::Sender<AgentCall>,
}

/// Makes calls for another task of the launcher. The agent's task lives at least as long.
#[derive(Debug, Clone)]
pub(crate) struct AgentCaller(mpsc::Sender<AgentCall>);

impl AgentCaller {
    /// Makes one call, or returns a sentence with the reason why it failed.
    pub(crate) async fn ask(&self, query: AgentQuestion) -> Result<(), String> {
        let gone = || "the guest agent has disconnected".to_owned();
        let (reply_to, mut replies) = mpsc::channel(1);
        let call = AgentCall {
            id: 0,
            query,
            reply_to,
        };
        self.0.send(call).await.map_err(|_closed| gone())?;
        match replies.recv().await {
            Some(FromLauncher::Reply {
                reply: Reply::Refused { message, .. },
                ..
            }) => Err(message),
            Some(_) => Ok(()),
            None => Err(gone()),
        }
    }
}

/// Calls the agent through libvirt.
pub(super) struct LibvirtTransport {
    pub(super) connection: Connection,
    pub(super) domain: Domain,
}

impl Transport for LibvirtTransport {
    async fn send(&self, command: &str) -> Result<String, libvirt::Error> {
        let seconds = if command.contains(commands::FREEZE) {
            FREEZE_SECONDS
        } else {
            RESPONSE_SECONDS
        };
        self.connection.agent(&self.domain, command, seconds).await
    }
}

impl AgentTask {
    /// Creates the task of an agent that has just connected.
    pub(crate) fn new(
        connection: Connection,
        domain: Domain,
        initial: Initial,
    ) -> (Self, impl Future<Output = ()> + Send) {
        Self::over(LibvirtTransport { connection, domain }, initial)
    }

    pub(super) fn over<T: Transport>(
        transport: T,
        initial: Initial,
    ) -> (Self, impl Future<Output = ()> + use<T>) {
        let (sender, report) = watch::channel(initial.report);
        let (calls, received) = mpsc::channel(MAX_WAITING);
        let credentials = Credentials::new(initial.credentials);
        let running = run(transport, sender, received, initial.thaw, credentials);
        (Self { report, calls }, running)
    }

    pub(crate) fn caller(&self) -> AgentCaller {
        AgentCaller(self.calls.clone())
    }

    /// Queues a call, unless too many wait.
    pub(crate) fn try_send(&self, call: AgentCall) -> Result<(), TrySendError<AgentCall>> {
        self.calls.try_send(call)
    }
}

async fn run(
    transport: impl Transport,
    report: watch::Sender<Option<Agent>>,
    mut calls: mpsc::Receiver<AgentCall>,
    thaw: ThawTimer,
    mut credentials: Credentials,
) {
    let mut delays = FIRST_POLLS.into_iter();
    let mut next_poll = Instant::now() + delays.next().unwrap_or(POLL_INTERVAL);
    let mut thaw_retry = Backoff::new(THAW_RETRY, THAW_RETRY_MAX);
    loop {
        let deadline = thaw.deadline();
        tokio::select! {
            call = calls.recv() => match call {
                Some(call) => {
                    if freeze::execute(&transport, call, &thaw).await == Effect::Changed {
                        next_poll = Instant::now();
                    }
                }
                None => return,
            },
            () = tokio::time::sleep_until(deadline.unwrap_or(next_poll)), if deadline.is_some() => {
                thaw_now(&transport, &thaw, &mut thaw_retry).await;
                next_poll = Instant::now();
            }
            () = tokio::time::sleep_until(next_poll) => {
                poll(&transport, &report, &mut credentials).await;
                next_poll = Instant::now() + delays.next().unwrap_or(POLL_INTERVAL);
            }
        }
    }
}

/// Thaws the guest because its time is over.
async fn thaw_now(transport: &impl Transport, thaw: &ThawTimer, retry: &mut Backoff) {
    match commands::execute(transport, AgentQuestion::Thaw).await {
        Ok(_) => {
            tracing::info!("the freeze timed out: thawed the guest's file systems");
            thaw.cancel();
            retry.reset();
        }
        Err(error) => {
            // Only the first failures are logged: an agent that is gone stays gone, and a guest
            // without an agent can hardly be frozen.
            let delay = retry.failed().delay;
            if delay < THAW_RETRY_MAX {
                tracing::warn!(error = error_chain(&error), "failed to thaw the guest");
            }
            thaw.postpone(delay);
        }
    }
}

async fn poll(
    transport: &impl Transport,
    report: &watch::Sender<Option<Agent>>,
    credentials: &mut Credentials,
) {
    let before = report.borrow().clone();
    match commands::poll(transport, before).await {
        Ok(mut agent) => {
            // A frozen guest cannot write; the report from before stays valid.
            if agent.freeze.is_none() {
                agent.credentials = credentials.synchronize(transport).await;
            }
            report.send_if_modified(|report| {
                let changed = report.as_ref() != Some(&agent);
                *report = Some(agent);
                changed
            });
        }
        Err(error) => {
            tracing::debug!(
                error = error_chain(&error),
                "the guest agent does not respond"
            );
        }
    }
}
