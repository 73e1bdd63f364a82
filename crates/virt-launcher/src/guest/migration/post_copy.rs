//! Post-copy: the guest runs in the new pod while the rest of its memory follows from the old one.
//!
//! libvirt ends the copy in the old pod when QEMU has switched. Then the old launcher records that it gives the
//! guest up, and asks the new one to run it. The old QEMU stays until all of the memory has left it.
//!
//! **Invariants**: the new launcher runs the guest only when the old one has asked for it, or the handler, once
//! all of the memory has left the old pod; the old launcher asks only after its record; how post-copy ends is known from
//! the old QEMU and from libvirt of the new pod, not from a connection between launchers, so that launchers and libvirtds
//! may die meanwhile; a part is given up only when the other one is gone, or nothing connects the two any more. In the new pod nothing
//! else is asked of libvirt before the end: it would wait for that.

use error_chain::error_chain;
use launcher_channel::{DomainState, MigrationStage, StopReason};
use libvirt::{Connection, Cookie, Migration, Outcome, PausedReason};
use tokio::sync::oneshot;

use super::copying::Copied;
use super::follow::{Follow, FollowEnd};
use super::peer::{Answer, WireCookie};
use super::{Event, stage};
use crate::guest::record::{MigrationRecord, MigrationStep};
use crate::guest::refusal::Refusal;
use crate::guest::status::{Phase, Status, given_up};
use crate::guest::task::Guest;

/// The last step at the new pod, which is to be taken.
#[derive(Debug)]
pub(super) struct Begun {
    connection: Connection,
    cookie: Cookie,
    migration: Migration,
}

/// What has become of the memory of a guest in post-copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Memory {
    /// It follows, if the guest is in post-copy at all.
    Follows,
    /// It cannot follow any more.
    Lost,
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
        (Some(Switched), Status::Alive(_)) if memory == Memory::Lost => {
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

impl Guest {
    /// Has a copy switched to post-copy, if that is possible, or the guest paused, as the plan says. A guest that its user
    /// has paused is copied without.
    pub(in crate::guest) fn start_post_copy(&mut self, id: &str) {
        let record = self.store.migration();
        let is_copying = record.is_some_and(|record| {
            record.id == id && record.step == MigrationStep::Copying && !record.stays_paused
        });
        if is_copying && !self.migrations.switch.is_cancelled() {
            tracing::info!(id, "the copy is to come to its end");
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
        // The VMI has failed, or does soon.
        if self.migrations.memory == Memory::Lost {
            return Ok(());
        }
        let step = self.store.migration_step();
        if self.is_alive() {
            if step == Some(MigrationStep::Switched) {
                self.leave(None);
            } else {
                self.arrive();
                self.listen_again();
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
        let task = self.tasks.spawn(async move {
            let events = follow.events.clone();
            let end = follow.leave(copied, stays_paused).await;
            // The guest's task may have ended.
            events.send(Event::Followed(end)).await.ok();
        });
        self.migrations.follow = Some(task.abort_handle());
    }

    /// The part of the new pod, if libvirt was asked to run the guest by an earlier launcher.
    fn arrive(&mut self) {
        let Some(follow) = self.follow() else { return };
        let task = self.tasks.spawn(async move {
            let end = follow.arrive().await;
            // The guest's task may have ended.
            follow.events.send(Event::Followed(end)).await.ok();
        });
        self.migrations.follow = Some(task.abort_handle());
    }

    /// The guest was given up to this pod: libvirt runs it, and waits until all of its memory is here.
    pub(super) async fn run_early(
        &mut self,
        begun: Begun,
        answer: Option<oneshot::Sender<Answer>>,
    ) {
        let Begun {
            connection,
            cookie,
            migration,
        } = begun;
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
                        FollowEnd::Interrupted(message.clone())
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

    /// The same, if the old launcher could not ask for it.
    pub(super) async fn run_without_request(&mut self) -> Result<(), Refusal> {
        let nothing = WireCookie::from(&Cookie::default());
        let stays_paused = self.store.migration().is_some_and(|one| one.stays_paused);
        let begun = self.begin_early(&nothing, stays_paused)?;
        self.run_early(begun, None).await;
        Ok(())
    }

    /// Records that the guest belongs to this pod.
    pub(super) fn begin_early(
        &mut self,
        cookie: &WireCookie,
        stays_paused: bool,
    ) -> Result<Begun, Refusal> {
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
        Ok(Begun {
            connection,
            cookie,
            migration: self.arrival(None, &[], true),
        })
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
            (Some(MigrationStep::Switched), FollowEnd::Ended(reason)) => {
                self.end_as_there(reason).await
            }
            (_, FollowEnd::Interrupted(message)) => {
                tracing::warn!(
                    message,
                    "the rest of the guest's memory does not follow; the old pod gives it up"
                );
                self.settle_migration().await
            }
            (_, FollowEnd::Complete | FollowEnd::Ended(_) | FollowEnd::Unknown) => {
                self.settle_migration().await
            }
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

    /// The guest has ended by itself in the new pod: so have its VMI, and what is left of it here.
    async fn end_as_there(&mut self, reason: StopReason) -> Result<(), Refusal> {
        tracing::info!(?reason, "the guest has ended in the other pod");
        let message = "the guest has ended in the new pod".to_owned();
        self.set_stage(MigrationStage::Failed(message));
        // Before the end of its QEMU, which would count as another reason.
        self.apply(Status::Ended(reason)).await?;
        self.end_given_up().await;
        Ok(())
    }

    async fn complete_arrival(&mut self) -> Result<(), Refusal> {
        if self.store.migration().is_some_and(|one| one.stays_paused) {
            self.call(async |to, domain| to.suspend(domain).await)
                .await?;
        }
        self.store.arrive()?;
        self.set_stage(MigrationStage::Done);
        // It may still have to answer, and ends by itself; a further migration does not wait for it.
        self.migrations.task = None;
        self.stop_listening();
        tracing::info!("all of the guest is in this pod");
        self.observe().await?;
        Box::pin(self.refresh_links()).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use launcher_channel::GuestState;
    use tempfile::TempDir;
    use tokio::sync::watch;

    use super::*;
    use crate::guest::migration::peer::Ask;
    use crate::guest::record::RecordStore;
    use crate::guest::task::tests::{guest, parts, plan};
    use crate::settings::Paths;

    fn record(step: MigrationStep) -> MigrationRecord {
        MigrationRecord {
            id: "m".to_owned(),
            step,
            stays_paused: false,
        }
    }

    /// A guest without a connection to libvirt.
    fn guest_at(
        step: MigrationStep,
        phase: Phase,
    ) -> (Guest, watch::Receiver<Option<GuestState>>, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let mut store = RecordStore::open(&paths.record()).unwrap();
        store.set_plan(plan()).unwrap();
        store.set_migration(Some(record(step))).unwrap();
        store.advance(phase).unwrap();
        let (sender, states) = watch::channel(None);
        (Guest::new(parts(&paths, store, sender)), states, dir)
    }

    /// Issue: a guest that came by post-copy could never migrate again.
    #[tokio::test]
    async fn guest_that_has_come_waits_for_no_launcher() {
        let (mut guest, _states, _dir) = guest_at(MigrationStep::Following, Phase::Started);
        let waiting = guest.tasks.spawn(std::future::pending::<()>());
        guest.migrations.task = Some(waiting.abort_handle());
        guest.on_follow_end(FollowEnd::Complete).await;
        assert!(guest.migrations.task.is_none());
        assert_eq!(guest.store.migration_step(), Some(MigrationStep::Arrived));
        let report = guest.migration_report().unwrap();
        assert_eq!(report.stage, MigrationStage::Done);
    }

    /// Issue: a guest that powered itself off in post-copy counted as lost, and was started again.
    #[tokio::test(start_paused = true)]
    async fn guest_that_has_ended_in_its_new_pod_has_ended() {
        let ended = Phase::Ended(StopReason::Shutdown);
        let (mut new, _states, _dir) = guest_at(MigrationStep::Following, ended);
        let answer = new.answer(Ask::End).await;
        assert!(
            matches!(answer, Ok(Answer::Ended(Some(StopReason::Shutdown)))),
            "{answer:?}"
        );
        let (mut old, states, _dir) = guest_at(MigrationStep::Switched, Phase::Started);
        old.on_follow_end(FollowEnd::Ended(StopReason::Shutdown))
            .await;
        let state = states.borrow().clone().unwrap();
        let ended = DomainState::Stopped(StopReason::Shutdown);
        assert_eq!(state.domain, Some(ended));
        assert!(old.store.is_given_up());
    }

    /// Issue: the handler was told that the guest runs.
    #[tokio::test]
    async fn take_over_that_is_not_possible_is_refused() {
        let (mut guest, _states, _dir) = guest_at(MigrationStep::Incoming, Phase::Receiving);
        guest.status = Some(Status::Startable);
        guest.migrations.holds = true;
        // There is no connection to libvirt.
        let refusal = guest.take_over("m").await.unwrap_err();
        assert!(refusal.is_closed(), "{refusal:?}");
        assert_eq!(guest.store.migration_step(), Some(MigrationStep::Incoming));
    }

    /// Issue: a user's pause made the switch impossible, and the handler asked each second.
    #[tokio::test(start_paused = true)]
    async fn request_to_switch_is_made_once_and_not_for_a_paused_guest() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let (sender, _states) = watch::channel(None);
        let (mut guest, _libvirtd) = guest(&paths, sender);
        guest
            .store
            .set_migration(Some(record(MigrationStep::Copying)))
            .unwrap();
        guest.migrations.enter("m", MigrationStage::Copying);
        let needs_none = |guest: &Guest| guest.migration_report().unwrap().needs_no_switch;
        assert!(!needs_none(&guest));
        guest.store.set_stays_paused(true).unwrap();
        assert!(needs_none(&guest));
        guest.start_post_copy("m");
        guest.store.set_stays_paused(false).unwrap();
        assert!(!needs_none(&guest), "the guest was paused");
        guest.start_post_copy("m");
        assert!(needs_none(&guest));
    }

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
            // Only the old pod knows that the memory is lost.
            (Following, alive(Running), Lost, alive(Running)),
            (Arrived, alive(Running), Lost, alive(Running)),
            (Incoming, alive(PausedOther), Follows, alive(PausedOther)),
        ] {
            let found = seen(status, Some(step), memory);
            assert_eq!(found, expected, "{step:?} {status:?} {memory:?}");
        }
    }

    #[test]
    fn copy_counts_as_switched_when_libvirt_pauses_the_guest_for_it() {
        use libvirt::DomainState::{Paused, Running};
        for (state, expected) in [
            (Running(libvirt::RunningReason::Other), false),
            (Paused(PausedReason::Migration), false),
            (Paused(PausedReason::User), false),
            (Paused(PausedReason::Postcopy), true),
            (Paused(PausedReason::PostcopyFailed), true),
        ] {
            assert_eq!(is_in(state), expected, "{state:?}");
        }
    }
}
