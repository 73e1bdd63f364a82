//! Post-copy: the guest runs in the new pod while the rest of its memory follows from the old one.
//!
//! libvirt ends the copy in the old pod when QEMU has switched. Then the old launcher records that it gives the
//! guest up, and asks the new one to run it. The old QEMU stays until all of the memory has left it.
//!
//! **Invariants**: the new launcher runs the guest only when the old one has asked for it, or the handler, once
//! all of the memory has left the old pod; the old launcher asks only after its record; how post-copy ends is known from a QEMU, not from a connection between launchers,
//! so that launchers and libvirtds may die meanwhile.

use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{DomainState, MigrationStage};
use libvirt::{Connection, Cookie, Domain, Migration, Outcome, PausedReason};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};

use super::copying::{Copied, report_progress};
use super::peer::{Answer, Ask, Peer, PeerError, WireCookie};
use super::{Event, stage};
use crate::guest::qmp;
use crate::guest::record::{MigrationRecord, MigrationStep};
use crate::guest::refusal::Refusal;
use crate::guest::status::{Phase, Status, given_up};
use crate::guest::task::Guest;

const INTERVAL: Duration = Duration::from_secs(1);
/// The pause before the other launcher is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const QUERY: &str = "query-migrate";

/// What has become of the memory of a guest in post-copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Memory {
    /// It follows, if the guest is in post-copy at all.
    Follows,
    /// It cannot follow any more.
    Lost,
}

/// Why this pod does not wait for the memory any more.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::guest) enum FollowEnd {
    /// All of it is in the new pod.
    Complete,
    Broken(String),
    /// libvirtd or QEMU does not answer.
    Unknown,
}

/// The status of a guest that moves, from that of its QEMU in this pod. What libvirt calls failed may still
/// follow: libvirt says so when its client has died.
pub(in crate::guest) fn seen(
    status: Status,
    step: Option<MigrationStep>,
    memory: Memory,
) -> Status {
    use DomainState::{PausedOther, PausedPostcopyFailed};
    use MigrationStep::{Copying, Following, GivenUp, Switched};
    match (step, status) {
        (Some(GivenUp), status) => given_up(status),
        (Some(Switched | Following), Status::Alive(_)) if memory == Memory::Lost => {
            Status::Alive(PausedPostcopyFailed)
        }
        (Some(Switched), Status::Alive(_))
        | (Some(Copying | Following), Status::Alive(PausedPostcopyFailed)) => {
            Status::Alive(PausedOther)
        }
        (_, status) => status,
    }
}

/// Whether the guest of the old pod is in post-copy.
pub(super) fn is_in(state: libvirt::DomainState) -> bool {
    matches!(
        state,
        libvirt::DomainState::Paused(PausedReason::Postcopy | PausedReason::PostcopyFailed)
    )
}

/// How post-copy has ended, by the status that a QEMU shows of it.
fn end_of(status: &str) -> Option<FollowEnd> {
    match status {
        "completed" => Some(FollowEnd::Complete),
        "postcopy-paused" | "failed" | "cancelled" => Some(FollowEnd::Broken(format!(
            "the connection between the two QEMUs ended before all of the memory was copied ({status})"
        ))),
        _ => None,
    }
}

impl Guest {
    /// Has a copy switched to post-copy, if that is possible. A guest that its user has paused is copied without.
    pub(in crate::guest) fn start_post_copy(&mut self, id: &str) {
        let record = self.store.migration();
        let is_copying = record.is_some_and(|record| {
            record.id == id && record.step == MigrationStep::Copying && !record.stays_paused
        });
        if is_copying {
            tracing::info!(id, "the copy is to be switched to post-copy");
            self.migrations.switch.cancel();
        }
    }

    /// The copy was switched: the guest goes on in the other pod.
    pub(super) async fn let_go(&mut self, copied: Copied) {
        self.record_switch();
        if let Err(error) = self.observe().await {
            tracing::warn!(error = error_chain(&error), "failed to query the guest");
        }
        self.leave(Some(copied));
    }

    pub(super) fn record_switch(&mut self) {
        if let Err(error) = self.record_step(MigrationStep::Switched) {
            // The next launcher sees at libvirt that the copy was switched.
            tracing::error!(%error, "failed to record post-copy: the guest is given up");
        }
        failpoints::after("virt-launcher/migration/switched");
        tracing::info!("the guest goes on in the other pod, and its memory follows");
        self.set_stage(MigrationStage::PostCopy);
    }

    fn record_step(&mut self, step: MigrationStep) -> std::io::Result<()> {
        let record = self.store.migration().cloned();
        let record = record.map(|record| MigrationRecord { step, ..record });
        self.store.set_migration(record)
    }

    /// Whether the copy was switched, by an earlier launcher that could not record it.
    pub(super) async fn was_switched(&self) -> Result<bool, Refusal> {
        let (true, Some(connection), Some(domain)) =
            (self.is_alive(), self.connection(), self.domain())
        else {
            return Ok(false);
        };
        Ok(is_in(connection.state(&domain).await?))
    }

    /// Waits again for the memory, after a restart of this launcher or of libvirtd.
    pub(super) async fn settle_post_copy(&mut self) -> Result<(), Refusal> {
        if self.migrations.follow.is_some() {
            return Ok(());
        }
        self.observe().await?;
        let step = self.store.migration_step();
        if self.is_alive() {
            match step {
                Some(MigrationStep::Switched) => self.leave(None),
                _ => self.arrive(),
            }
        } else if let (Some(step), Some(phase)) = (step, self.store.phase())
            && let Some(stage) = stage(step, phase)
        {
            self.set_stage(stage);
            self.publish();
        }
        Ok(())
    }

    fn follow(&self) -> Option<Follow> {
        Some(Follow {
            connection: self.connection()?,
            domain: self.domain()?,
            events: self.migrations.sender.clone(),
        })
    }

    /// The part of the old pod.
    fn leave(&mut self, copied: Option<Copied>) {
        // Without a connection, the next one continues.
        let Some(follow) = self.follow() else { return };
        let stays_paused = self.store.migration().is_some_and(|one| one.stays_paused);
        let cookie = copied
            .as_ref()
            .map(|copied| WireCookie::from(&copied.cookie));
        let finish = Ask::Finish {
            cookie: cookie.unwrap_or_else(|| WireCookie::from(&Cookie::default())),
            stays_paused,
            reports_busy: true,
            post_copy: true,
        };
        let task = self.tasks.spawn(async move {
            let events = follow.events.clone();
            let end = follow.leave(copied, &finish).await;
            // The guest's task may have ended.
            events.send(Event::Followed(end)).await.ok();
        });
        self.migrations.follow = Some(task.abort_handle());
    }

    /// The part of the new pod, if libvirt was asked to run the guest by an earlier launcher.
    fn arrive(&mut self) {
        let Some(follow) = self.follow() else { return };
        let task = self.tasks.spawn(async move {
            let end = follow.end().await;
            // The guest's task may have ended.
            follow.events.send(Event::Followed(end)).await.ok();
        });
        self.migrations.follow = Some(task.abort_handle());
    }

    /// The guest was given up to this pod: libvirt runs it, and waits until all of its memory is here.
    pub(super) async fn run_early(
        &mut self,
        cookie: &WireCookie,
        stays_paused: bool,
        answer: Option<oneshot::Sender<Answer>>,
    ) {
        let (connection, cookie) = match self.begin_early(cookie, stays_paused) {
            Ok(begun) => begun,
            Err(refusal) => {
                let message = error_chain(&refusal);
                tracing::warn!(message, "the guest was not run");
                // The other launcher may be gone.
                if let Some(answer) = answer {
                    answer.send(Answer::Refused(message)).ok();
                }
                return;
            }
        };
        let migration = self.arrival(None, &[], true);
        let events = self.migrations.sender.clone();
        let task = self.tasks.spawn(async move {
            let finished = connection
                .finish(&migration, &cookie, Outcome::Switched)
                .await;
            let (end, said) = match finished {
                Ok((_, cookie)) => (
                    FollowEnd::Complete,
                    Answer::Cookie(WireCookie::from(&cookie)),
                ),
                Err(error) => {
                    let message = error_chain(&error);
                    let end = if error.is_closed() {
                        FollowEnd::Unknown
                    } else {
                        FollowEnd::Broken(message.clone())
                    };
                    (end, Answer::Refused(message))
                }
            };
            // The guest's task may have ended, and the other launcher may be gone.
            events.send(Event::Followed(end)).await.ok();
            if let Some(answer) = answer {
                answer.send(said).ok();
            }
        });
        self.migrations.follow = Some(task.abort_handle());
        if let Err(error) = self.observe().await {
            tracing::warn!(error = error_chain(&error), "failed to query the guest");
        }
    }

    fn begin_early(
        &mut self,
        cookie: &WireCookie,
        stays_paused: bool,
    ) -> Result<(Connection, Cookie), Refusal> {
        let cookie = cookie.decode().map_err(|_| Refusal::NotReceived)?;
        if self.store.phase() != Some(Phase::Receiving) {
            return Err(Refusal::NotReceived);
        }
        let connection = self.connection().ok_or(libvirt::Error::Closed)?;
        self.store.set_stays_paused(stays_paused)?;
        self.record_step(MigrationStep::Following)?;
        // It may run from now on; only libvirt resumes it.
        self.store.advance(Phase::Started)?;
        self.set_stage(MigrationStage::PostCopy);
        tracing::info!("the guest runs here, and its memory follows");
        Ok((connection, cookie))
    }

    pub(super) async fn on_follow_end(&mut self, end: FollowEnd) {
        self.migrations.follow = None;
        let step = self.store.migration_step();
        let done = match (step, end) {
            (Some(MigrationStep::Switched), FollowEnd::Complete) => self.complete_leaving().await,
            (Some(MigrationStep::Following), FollowEnd::Complete) => self.complete_arrival().await,
            (_, FollowEnd::Broken(message)) => {
                tracing::error!(
                    message,
                    "post-copy has failed: the guest's memory is lost, and the VMI fails"
                );
                self.migrations.memory = Memory::Lost;
                self.set_stage(MigrationStage::Failed(message));
                self.observe().await
            }
            (_, FollowEnd::Complete | FollowEnd::Unknown) => self.settle_migration().await,
        };
        if let Err(error) = done {
            tracing::warn!(error = error_chain(&error), "failed to settle post-copy");
            // The next connection tries again.
            self.lose_link();
        }
    }

    async fn complete_leaving(&mut self) -> Result<(), Refusal> {
        self.record_step(MigrationStep::GivenUp)?;
        self.end_given_up().await;
        self.set_stage(MigrationStage::Done);
        tracing::info!("all of the guest is in the other pod");
        Ok(())
    }

    async fn complete_arrival(&mut self) -> Result<(), Refusal> {
        if self.store.migration().is_some_and(|one| one.stays_paused) {
            self.call(async |to, domain| to.suspend(domain).await)
                .await?;
        }
        self.record_step(MigrationStep::Arrived)?;
        self.observe().await?;
        self.set_stage(MigrationStage::Done);
        tracing::info!("all of the guest is in this pod");
        Ok(())
    }
}

/// The wait of a pod for the end of post-copy.
#[derive(Debug)]
struct Follow {
    connection: Connection,
    domain: Domain,
    events: mpsc::Sender<Event>,
}

impl Follow {
    /// Has the other launcher run the guest, and waits until all of the memory has left this pod.
    async fn leave(&self, copied: Option<Copied>, finish: &Ask) -> FollowEnd {
        let (peer, migration) = match copied {
            Some(copied) => (Some(copied.peer), Some(copied.migration)),
            None => (None, None),
        };
        let (end, cookie) = tokio::select! {
            cookie = ask_until_done(peer, finish) => (FollowEnd::Complete, cookie),
            end = self.end() => (end, Cookie::default()),
        };
        // For a client that has died, libvirt ends this QEMU by itself.
        if let (FollowEnd::Complete, Some(migration)) = (&end, &migration) {
            self.confirm(migration, &cookie).await;
        }
        end
    }

    async fn confirm(&self, migration: &Migration, cookie: &Cookie) {
        let confirmed = self
            .connection
            .confirm(&self.domain, migration, cookie, Outcome::Copied)
            .await;
        if let Err(error) = confirmed {
            tracing::warn!(
                error = error_chain(&error),
                "libvirt did not confirm the migration"
            );
        }
    }

    /// Waits until the QEMU of this pod shows how post-copy has ended.
    async fn end(&self) -> FollowEnd {
        let mut ticks = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.status().await {
                Ok(status) => {
                    if let Some(end) = end_of(&status) {
                        return end;
                    }
                }
                Err(error) => {
                    tracing::debug!(error = error_chain(&error), "QEMU shows no migration");
                    if !self.is_alive().await {
                        return FollowEnd::Unknown;
                    }
                }
            }
            report_progress(&self.connection, &self.domain, &self.events).await;
        }
    }

    /// Whether libvirt knows a QEMU, after one did not answer.
    async fn is_alive(&self) -> bool {
        use libvirt::DomainState::{Blocked, Paused, Running};
        let state = self.connection.state(&self.domain).await;
        matches!(state, Ok(Running | Blocked | Paused(_)))
    }

    async fn status(&self) -> Result<String, libvirt::Error> {
        let query = qmp::command(QUERY, &json!({}));
        let answer = self.connection.monitor(&self.domain, &query).await?;
        let status = match qmp::result(QUERY, &answer) {
            Ok(result) => result["status"].as_str().map(ToOwned::to_owned),
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "QEMU shows no migration");
                None
            }
        };
        Ok(status.unwrap_or_default())
    }
}

/// Asks the other launcher to run the guest, until it says that all of the memory is there.
async fn ask_until_done(mut peer: Option<Peer>, finish: &Ask) -> Cookie {
    loop {
        match ask(peer.take(), finish).await {
            Ok(cookie) => return cookie,
            Err(error) => tracing::info!(
                error = error_chain(&error),
                "the other pod did not say that all of the memory is there"
            ),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn ask(peer: Option<Peer>, finish: &Ask) -> Result<Cookie, PeerError> {
    let mut peer = match peer {
        Some(peer) => peer,
        None => Peer::connect().await?,
    };
    peer.ask_for_cookie(finish).await
}

#[cfg(test)]
mod tests {
    use launcher_channel::StopReason;

    use super::*;

    #[test]
    fn guest_in_post_copy_fails_only_when_qemu_says_so() {
        use DomainState::{PausedOther, PausedPostcopyFailed, Running};
        use Memory::{Follows, Lost};
        use MigrationStep::{Arrived, Copying, Following, GivenUp, Incoming, Switched};
        let alive = Status::Alive;
        let ended = Status::Ended;
        for (step, status, memory, expected) in [
            // The launcher that had the copy switched has died.
            (
                Copying,
                alive(PausedPostcopyFailed),
                Follows,
                alive(PausedOther),
            ),
            (Copying, alive(Running), Follows, alive(Running)),
            (
                Switched,
                alive(PausedPostcopyFailed),
                Follows,
                alive(PausedOther),
            ),
            (Switched, alive(PausedOther), Follows, alive(PausedOther)),
            (
                Switched,
                alive(PausedOther),
                Lost,
                alive(PausedPostcopyFailed),
            ),
            // A QEMU that ends too early takes the memory with it.
            (
                Switched,
                ended(StopReason::Crashed),
                Follows,
                ended(StopReason::Crashed),
            ),
            (
                Switched,
                ended(StopReason::Migrated),
                Follows,
                ended(StopReason::Migrated),
            ),
            (
                GivenUp,
                ended(StopReason::Crashed),
                Follows,
                ended(StopReason::Migrated),
            ),
            (Following, alive(Running), Follows, alive(Running)),
            (Following, alive(Running), Lost, alive(PausedPostcopyFailed)),
            (Arrived, alive(Running), Lost, alive(Running)),
            (Incoming, alive(PausedOther), Follows, alive(PausedOther)),
        ] {
            let found = seen(status, Some(step), memory);
            assert_eq!(found, expected, "{step:?} {status:?} {memory:?}");
        }
    }

    #[test]
    fn only_final_states_of_qemu_end_the_wait() {
        for status in [
            "",
            "none",
            "active",
            "device",
            "postcopy-active",
            "postcopy-recover",
        ] {
            assert_eq!(end_of(status), None, "{status}");
        }
        assert_eq!(end_of("completed"), Some(FollowEnd::Complete));
        for status in ["postcopy-paused", "failed", "cancelled"] {
            let end = end_of(status);
            assert!(
                matches!(&end, Some(FollowEnd::Broken(message)) if message.contains(status)),
                "{status}: {end:?}"
            );
        }
    }

    #[test]
    fn copy_counts_as_switched_when_libvirt_pauses_the_guest_for_it() {
        use libvirt::DomainState::{Paused, Running};
        for (state, expected) in [
            (Running, false),
            (Paused(PausedReason::Migration), false),
            (Paused(PausedReason::User), false),
            (Paused(PausedReason::Postcopy), true),
            (Paused(PausedReason::PostcopyFailed), true),
        ] {
            assert_eq!(is_in(state), expected, "{state:?}");
        }
    }
}
