//! The handler's requests.

use launcher_channel::{DomainState, FromLauncher, Reply, Request};
use libvirt::{Connection, Domain};
use tokio::sync::mpsc;

use super::refusal::Refusal;
use super::status::Status;
use super::task::{Command, Guest};
use crate::agent::AgentCall;

impl Guest {
    pub(super) async fn on_command(&mut self, command: Command) {
        let Command {
            id,
            request,
            reply_to,
        } = command;
        let name = request_name(&request);
        let request = match request {
            Request::AskAgent(query) => {
                let call = AgentCall {
                    id,
                    query,
                    reply_to: reply_to.clone(),
                };
                match self.agent.send(call) {
                    // The agent's own task replies.
                    Ok(()) => return,
                    Err(refusal) => return send(&reply_to, id, refusal.into_reply()),
                }
            }
            request => request,
        };
        let reply = match self.handle(request).await {
            Ok(()) => Reply::Done(self.state()),
            Err(refusal) => {
                let reply = refusal.into_reply();
                tracing::warn!(request = name, ?reply, "request refused");
                reply
            }
        };
        send(&reply_to, id, reply);
    }

    async fn handle(&mut self, request: Request) -> Result<(), Refusal> {
        match request {
            Request::Sync(plan) => self.sync(*plan).await,
            Request::Pause => self.pause().await,
            Request::Unpause => self.unpause().await,
            Request::Shutdown { grace_seconds } => {
                self.ensure_known().await?;
                self.begin_shutdown(grace_seconds);
                self.tick_shutdown().await;
                Ok(())
            }
            Request::Destroy => self.destroy().await,
            Request::Release => {
                self.ensure_known().await?;
                if self.is_alive() {
                    return Err(Refusal::StillRunning);
                }
                self.released = true;
                failpoints::after("virt-launcher/guest/release");
                Ok(())
            }
            Request::SoftReboot => {
                self.call_if_alive(async |to, domain| to.reboot(domain).await)
                    .await
            }
            Request::Reset => {
                self.call_if_alive(async |to, domain| to.reset(domain).await)
                    .await
            }
            // Handled in `on_command`, since its reply is of another kind.
            Request::AskAgent(_) => Err(Refusal::NoAgent),
            Request::State => self.ensure_known().await,
        }
    }

    async fn pause(&mut self) -> Result<(), Refusal> {
        self.ensure_known().await?;
        match self.status {
            Some(Status::Alive(DomainState::PausedByUser)) => Ok(()),
            Some(Status::Alive(_)) => self.call(async |to, domain| to.suspend(domain).await).await,
            _ => Err(Refusal::NotRunning),
        }
    }

    async fn unpause(&mut self) -> Result<(), Refusal> {
        self.ensure_known().await?;
        match self.status {
            Some(Status::Alive(DomainState::Running)) => Ok(()),
            Some(Status::Alive(_)) => self.call(async |to, domain| to.resume(domain).await).await,
            _ => Err(Refusal::NotRunning),
        }
    }

    async fn destroy(&mut self) -> Result<(), Refusal> {
        self.ensure_known().await?;
        if !self.is_alive() {
            return Ok(());
        }
        self.call(async |to, domain| {
            to.destroy(domain).await?;
            failpoints::after("virt-launcher/guest/destroy");
            Ok(())
        })
        .await
    }

    async fn call_if_alive(
        &mut self,
        act: impl AsyncFn(&Connection, &Domain) -> Result<(), libvirt::Error>,
    ) -> Result<(), Refusal> {
        self.ensure_known().await?;
        if self.is_alive() {
            self.call(act).await
        } else {
            Err(Refusal::NotRunning)
        }
    }
}

/// The handler may have disconnected or stopped reading: it repeats the request either way.
fn send(to: &mpsc::Sender<FromLauncher>, id: u64, reply: Reply) {
    if let Err(error) = to.try_send(FromLauncher::Reply { id, reply }) {
        tracing::info!(%error, "reply dropped: the handler does not read it");
    }
}

fn request_name(request: &Request) -> &'static str {
    match request {
        Request::Sync(_) => "sync",
        Request::Pause => "pause",
        Request::Unpause => "unpause",
        Request::Shutdown { .. } => "shutdown",
        Request::Destroy => "destroy",
        Request::SoftReboot => "soft reboot",
        Request::Reset => "reset",
        Request::AskAgent(_) => "guest agent query",
        Request::Release => "release",
        Request::State => "state",
    }
}
