//! The handler's requests.

use launcher_channel::{DomainState, Reply, Request};
use libvirt::{Connection, Domain};

use super::refusal::Refusal;
use super::replies::ReplyTo;
use super::screenshot;
use super::status::Status;
use super::task::{Command, Guest};
use crate::agent::AgentCall;

/// How a request ended that was not refused.
enum Outcome {
    /// The reply is the guest's state.
    Done,
    /// Another task replies.
    RepliedLater,
}

impl Guest {
    pub(super) async fn on_command(&mut self, command: Command) {
        let Command {
            id,
            request,
            reply_to,
        } = command;
        let name = request.name();
        let reply_to = ReplyTo {
            id,
            channel: reply_to,
        };
        match self.handle(request, &reply_to).await {
            Ok(Outcome::Done) => {
                // So that an older state cannot follow the one of the reply.
                self.publish();
                reply_to.send(Reply::Done(self.state()));
            }
            Ok(Outcome::RepliedLater) => {}
            Err(refusal) => {
                let reply = refusal.into_reply();
                tracing::warn!(request = name, ?reply, "request refused");
                reply_to.send(reply);
            }
        }
    }

    async fn handle(&mut self, request: Request, reply_to: &ReplyTo) -> Result<Outcome, Refusal> {
        match request {
            Request::Sync(plan) => self.sync(*plan).await?,
            Request::Pause => self.pause().await?,
            Request::Unpause => self.unpause().await?,
            Request::Shutdown { grace_seconds } => {
                self.ensure_known().await?;
                self.begin_shutdown(grace_seconds);
                self.tick_shutdown().await;
            }
            Request::Destroy => self.destroy().await?,
            Request::Receive { id, plan } => self.receive(id, *plan).await?,
            Request::TakeOver { id } => self.take_over(&id).await?,
            Request::Migrate(plan) => self.migrate(*plan).await?,
            Request::Disks(wanted) => Box::pin(self.set_disks(wanted)).await?,
            Request::Links(wanted) => Box::pin(self.set_links(&wanted)).await?,
            Request::Interfaces(plan) => Box::pin(self.set_interfaces(*plan)).await?,
            Request::Resize(plan) => Box::pin(self.resize(&plan)).await?,
            Request::Dump(plan) => self.dump(plan).await?,
            Request::Backup(plan) => self.back_up(plan).await?,
            Request::CancelBackup(plan) => self.cancel_backup(plan).await?,
            Request::CancelMigration { id } => self.cancel_migration(&id).await?,
            Request::StartPostCopy { id } => self.start_post_copy(&id),
            Request::Release => {
                self.ensure_known().await?;
                if self.is_alive() {
                    return Err(Refusal::StillRunning);
                }
                self.released = true;
                failpoints::after("virt-launcher/guest/release");
            }
            Request::SoftReboot => {
                self.call_if_alive(async |to, domain| to.reboot(domain).await)
                    .await?;
            }
            Request::Reset => {
                self.call_if_alive(async |to, domain| to.reset(domain).await)
                    .await?;
            }
            Request::AskAgent(query) => {
                self.agent.send(AgentCall {
                    id: reply_to.id,
                    query,
                    reply_to: reply_to.channel.clone(),
                })?;
                return Ok(Outcome::RepliedLater);
            }
            Request::Screenshot { move_cursor } => {
                let take = move |to, domain| screenshot::take(to, domain, move_cursor);
                self.reply_with_content(reply_to.clone(), take).await?;
                return Ok(Outcome::RepliedLater);
            }
            Request::State => self.ensure_known().await?,
        }
        Ok(Outcome::Done)
    }

    async fn pause(&mut self) -> Result<(), Refusal> {
        self.ensure_known().await?;
        if self.is_alive() && self.store.is_given_up() {
            return Err(Refusal::HandedOver);
        }
        match self.status {
            Some(Status::Alive(_)) if self.store.is_moving() => self.pause_while_moving().await,
            Some(Status::Alive(DomainState::PausedByUser)) => Ok(()),
            Some(Status::Alive(_)) => self.call(async |to, domain| to.suspend(domain).await).await,
            _ => Err(Refusal::NotRunning),
        }
    }

    async fn unpause(&mut self) -> Result<(), Refusal> {
        self.ensure_known().await?;
        if self.store.is_receiving() {
            return Err(Refusal::Receiving);
        }
        if self.is_alive() && self.store.is_given_up() {
            return Err(Refusal::HandedOver);
        }
        match self.status {
            // libvirt would wait for the end of the copy, and so would the hand-over.
            Some(Status::Alive(_)) if self.store.is_moving() => {
                Ok(self.store.set_stays_paused(false)?)
            }
            Some(Status::Alive(DomainState::Running)) => Ok(()),
            Some(Status::Alive(_)) => {
                self.call(async |to, domain| to.resume(domain).await)
                    .await?;
                // It may have come paused from another pod.
                Box::pin(self.refresh_links()).await;
                Ok(())
            }
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
