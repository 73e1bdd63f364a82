//! The launcher of the pod that the guest leaves.

use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{
    DomainState, MigrationPlan, MigrationProgress, MigrationSocket, MigrationStage,
};
use libvirt::{
    Connection, Cookie, Domain, Job, Migration, MigrationFlags, MigrationParameters, Outcome,
    PausedReason,
};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::Event;
use super::peer::{Ask, Peer, PeerError, WireCookie};
use super::post_copy;
use crate::guest::record::{MigrationRecord, MigrationStep};
use crate::guest::refusal::Refusal;
use crate::guest::status::Status;
use crate::guest::task::Guest;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A guest that is paused here, and whose copy waits in the other pod.
#[derive(Debug)]
pub(in crate::guest) struct Copied {
    pub(super) id: String,
    pub(super) peer: Peer,
    pub(super) migration: Migration,
    pub(super) cookie: Cookie,
    pub(super) state: CopyState,
}

/// What the other pod has of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyState {
    All,
    /// The rest of the memory follows.
    Switched,
}

#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("failed to copy the guest")]
    Libvirt(#[from] libvirt::Error),
}

impl CopyError {
    /// Whether libvirt or QEMU of one of the pods has refused.
    fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Peer(PeerError::Refused(_)) | Self::Libvirt(libvirt::Error::Remote(_))
        )
    }
}

/// What both libvirtds and QEMUs must agree on.
pub(super) fn flags(copied_disks: &[String], post_copy: bool) -> MigrationFlags {
    MigrationFlags {
        copy_disks: !copied_disks.is_empty(),
        post_copy,
        ..MigrationFlags::default()
    }
}

/// Parameters of the end that uses these paths.
pub(super) fn parameters(
    path: fn(MigrationSocket) -> String,
    copied_disks: &[String],
) -> MigrationParameters {
    let uri = |socket| format!("unix://{}", path(socket));
    MigrationParameters {
        uri: Some(uri(MigrationSocket::Memory)),
        disks_uri: (!copied_disks.is_empty()).then(|| uri(MigrationSocket::Disks)),
        disks: copied_disks.to_vec(),
        ..MigrationParameters::default()
    }
}

fn migration(plan: &MigrationPlan) -> Migration {
    Migration {
        flags: MigrationFlags {
            auto_converge: plan.auto_converge,
            trusts_disks: plan.is_within_node,
            ..flags(&plan.copied_disks, plan.post_copy)
        },
        parameters: MigrationParameters {
            bandwidth_mib: plan.bandwidth_mib,
            ..parameters(MigrationSocket::source_path, &plan.copied_disks)
        },
    }
}

impl Guest {
    pub(in crate::guest) async fn migrate(&mut self, plan: MigrationPlan) -> Result<(), Refusal> {
        self.ensure_known().await?;
        if self.migrations.is(&plan.id) {
            return Ok(());
        }
        if self.migrations.task.is_some() || self.migrations.follow.is_some() {
            return Err(Refusal::Migrating);
        }
        self.ensure_no_backup().await?;
        if self.dumps.is_running() {
            return Err(Refusal::Dumping);
        }
        if self.store.is_receiving() {
            return Err(Refusal::Receiving);
        }
        // The record must not be replaced: a guest that was given up never runs here again.
        if self.store.is_given_up() {
            return Err(Refusal::NotRunning);
        }
        let (true, Some(connection), Some(domain)) =
            (self.is_alive(), self.connection(), self.domain())
        else {
            return Err(Refusal::NotRunning);
        };
        self.store.set_migration(Some(MigrationRecord {
            id: plan.id.clone(),
            step: MigrationStep::Copying,
            stays_paused: self.status == Some(Status::Alive(DomainState::PausedByUser)),
        }))?;
        tracing::info!(id = plan.id, "migration started");
        self.migrations.enter(&plan.id, MigrationStage::Copying);
        let cancelled = CancellationToken::new();
        self.migrations.cancelled = cancelled.clone();
        let switch = CancellationToken::new();
        self.migrations.switch = switch.clone();
        let events = self.migrations.sender.clone();
        let copying = self.tasks.spawn(async move {
            let guest = Copying {
                connection,
                domain,
                migration: migration(&plan),
                cancelled,
                switch,
                events: events.clone(),
            };
            let event = match guest.copy(&plan).await {
                Ok(copied) => Event::Copied(Box::new(copied)),
                Err(error) => Event::Failed(error_chain(&error)),
            };
            // The guest's task may have ended.
            events.send(event).await.ok();
        });
        self.migrations.task = Some(copying.abort_handle());
        Ok(())
    }

    pub(in crate::guest) async fn cancel_migration(&mut self, id: &str) -> Result<(), Refusal> {
        if !self.migrations.is(id) || self.migrations.task.is_none() {
            return Ok(());
        }
        tracing::info!(id, "cancelling the migration");
        if self.store.migration().map(|record| record.step) == Some(MigrationStep::Incoming) {
            return self.abandon().await;
        }
        self.migrations.cancelled.cancel();
        Ok(())
    }

    /// All has been copied: gives the guest to the other pod.
    pub(super) async fn hand_over(&mut self, copied: Copied) {
        self.migrations.task = None;
        if copied.state == CopyState::Switched {
            return self.let_go(copied).await;
        }
        if let Some(reason) = self.reason_to_keep().await {
            return self.keep(copied, reason).await;
        }
        let id = copied.id.clone();
        match self.give_up(copied).await {
            Ok(()) => {
                tracing::info!(id, "the guest runs in the other pod");
                self.migrations.enter(&id, MigrationStage::Done);
            }
            Err(message) => self.stay(message).await,
        }
    }

    /// Why a guest that was copied must not be given up.
    async fn reason_to_keep(&mut self) -> Option<String> {
        if self.migrations.cancelled.is_cancelled() {
            return Some("cancelled".to_owned());
        }
        if let Err(error) = self.observe().await {
            return Some(error_chain(&error));
        }
        let status = self.status.filter(|_| self.link.is_some());
        unlike_its_copy(status).map(ToOwned::to_owned)
    }

    /// The steps of the hand-over. An error means that the guest belongs to this pod.
    async fn give_up(&mut self, mut copied: Copied) -> Result<(), String> {
        let resume = !self.store.migration().is_some_and(|one| one.stays_paused);
        let finish = Ask::Finish {
            cookie: WireCookie::from(&copied.cookie),
            stays_paused: !resume,
            reports_busy: true,
            post_copy: false,
        };
        let finished = copied.peer.ask_for_cookie(&finish).await;
        let cookie = match finished {
            Ok(cookie) => cookie,
            Err(error) => {
                let message = error_chain(&error);
                self.confirm(&copied, &Cookie::default(), Outcome::Cancelled)
                    .await;
                return Err(message);
            }
        };
        failpoints::after("virt-launcher/migration/finished");
        let record = MigrationRecord {
            id: copied.id.clone(),
            step: MigrationStep::GivenUp,
            stays_paused: !resume,
        };
        if let Err(error) = self.store.set_migration(Some(record)) {
            // Whether the record was written is unknown, so the guest must not run here.
            tracing::error!(%error, "failed to record the hand-over: the guest is given up");
        }
        failpoints::after("virt-launcher/migration/given-up");
        self.confirm(&copied, &cookie, Outcome::Copied).await;
        failpoints::after("virt-launcher/migration/confirmed");
        self.end_given_up().await;
        // If this fails, the handler of the other pod asks for it as soon as this guest has ended.
        if let Err(error) = copied.peer.command(&Ask::Take { resume }).await {
            tracing::warn!(
                error = error_chain(&error),
                "the request to run the guest did not reach the other pod"
            );
        }
        Ok(())
    }

    async fn confirm(&self, copied: &Copied, cookie: &Cookie, outcome: Outcome) {
        let (Some(connection), Some(domain)) = (self.connection(), self.domain()) else {
            return;
        };
        let confirmed = connection
            .confirm(&domain, &copied.migration, cookie, outcome)
            .await;
        if let Err(error) = confirmed {
            tracing::warn!(
                error = error_chain(&error),
                "libvirt did not confirm the migration"
            );
        }
    }

    /// The guest that was copied goes on here.
    async fn keep(&mut self, mut copied: Copied, message: String) {
        self.confirm(&copied, &Cookie::default(), Outcome::Cancelled)
            .await;
        if let Err(error) = copied.peer.command(&Ask::Abandon).await {
            tracing::info!(
                error = error_chain(&error),
                "the end of the migration did not reach the other pod"
            );
        }
        self.stay(message).await;
    }

    /// The migration has failed or was cancelled: the guest goes on here.
    pub(super) async fn stay(&mut self, message: String) {
        self.migrations.task = None;
        let Some(report) = &mut self.migrations.report else {
            return;
        };
        tracing::warn!(id = report.id, message, "the migration has failed");
        report.stage = if self.migrations.cancelled.is_cancelled() {
            MigrationStage::Cancelled
        } else {
            MigrationStage::Failed(message)
        };
        if let Err(error) = self.settle_migration().await {
            tracing::warn!(
                error = error_chain(&error),
                "failed to bring the guest back after a migration"
            );
            // The next connection tries again.
            self.lose_link();
        }
    }

    /// Ends what a migration has left behind: a guest that was given up never runs here again, and
    /// one that was not goes on.
    pub(in crate::guest) async fn settle_migration(&mut self) -> Result<(), Refusal> {
        let step = self.store.migration_step();
        if matches!(
            step,
            Some(MigrationStep::Switched | MigrationStep::Following)
        ) {
            return self.settle_post_copy().await;
        }
        if self.migrations.task.is_some() {
            return Ok(());
        }
        let was_switched = step == Some(MigrationStep::Copying) && self.was_switched().await?;
        match step {
            None
            | Some(
                MigrationStep::Incoming
                | MigrationStep::Arrived
                | MigrationStep::Switched
                | MigrationStep::Following,
            ) => Ok(()),
            Some(MigrationStep::GivenUp) => {
                self.end_given_up().await;
                Ok(())
            }
            Some(MigrationStep::Copying) if was_switched => {
                self.record_switch();
                self.settle_post_copy().await
            }
            Some(MigrationStep::Copying) => {
                self.resume_after_copy().await?;
                self.store.set_migration(None)?;
                if let Some(report) = &mut self.migrations.report
                    && report.stage == MigrationStage::Copying
                {
                    let message = "the launcher was restarted during the copy".to_owned();
                    report.stage = MigrationStage::Failed(message);
                }
                Ok(())
            }
        }
    }

    async fn resume_after_copy(&mut self) -> Result<(), Refusal> {
        self.observe().await?;
        if !self.is_alive() {
            return Ok(());
        }
        let (Some(connection), Some(domain)) = (self.connection(), self.domain()) else {
            return Err(libvirt::Error::Closed.into());
        };
        if let Err(error) = connection.abort_job(&domain).await {
            tracing::debug!(error = error_chain(&error), "no job is left");
        }
        let stays_paused = self.store.migration().is_some_and(|one| one.stays_paused);
        let steps = after_failure(connection.state(&domain).await?, stays_paused);
        if !steps.is_empty() {
            tracing::info!(
                ?steps,
                "restoring the guest's state after a migration that failed"
            );
        }
        for step in steps {
            match step {
                Restore::Resume => connection.resume(&domain).await?,
                Restore::Suspend => connection.suspend(&domain).await?,
            }
        }
        self.observe().await
    }

    /// Has the guest paused at the end of its move, and now if it runs here. libvirt forgets who has paused a
    /// guest that it copies, and resumes it if the copy fails.
    pub(in crate::guest) async fn pause_while_moving(&mut self) -> Result<(), Refusal> {
        self.store.set_stays_paused(true)?;
        if self.status != Some(Status::Alive(DomainState::Running)) {
            return Ok(());
        }
        self.call(async |to, domain| to.suspend(domain).await).await
    }

    /// Ends the QEMU of a guest that runs in the other pod.
    pub(super) async fn end_given_up(&mut self) {
        let ended = async |to: &Connection, domain: &Domain| match to.destroy(domain).await {
            // It has ended already.
            Err(libvirt::Error::Remote(_)) => Ok(()),
            done => done,
        };
        if let Err(error) = self.call(ended).await
            && !matches!(error, Refusal::NotRunning)
        {
            tracing::error!(
                error = error_chain(&error),
                "the guest that was given up is still here"
            );
        }
    }
}

/// The copy of a guest, in a task of its own.
#[derive(Debug)]
struct Copying {
    connection: Connection,
    domain: Domain,
    migration: Migration,
    cancelled: CancellationToken,
    switch: CancellationToken,
    events: mpsc::Sender<Event>,
}

impl Copying {
    async fn copy(mut self, plan: &MigrationPlan) -> Result<Copied, CopyError> {
        let mut peer = Peer::connect().await?;
        let cookie = match self.prepare(&mut peer, plan).await {
            Err(error) if self.migration.flags.post_copy && error.is_refusal() => {
                tracing::warn!(
                    error = error_chain(&error),
                    "the guest is copied such that it cannot be switched to post-copy"
                );
                self.migration.flags.post_copy = false;
                self.prepare(&mut peer, plan).await?
            }
            prepared => prepared?,
        };
        failpoints::after("virt-launcher/migration/prepared");
        if self.migration.flags.post_copy {
            // The guest's task may have ended.
            self.events.send(Event::CanSwitch).await.ok();
        }
        match self.perform(&mut peer, &cookie).await {
            Ok((cookie, state)) => Ok(Copied {
                id: plan.id.clone(),
                peer,
                migration: self.migration,
                cookie,
                state,
            }),
            Err(error) => {
                // First of all the guest goes on: the other pod may be unreachable.
                let nothing = Cookie::default();
                let confirmed = self
                    .connection
                    .confirm(&self.domain, &self.migration, &nothing, Outcome::Cancelled)
                    .await;
                if let Err(error) = confirmed {
                    tracing::debug!(error = error_chain(&error), "nothing to take back");
                }
                if let Err(error) = peer.command(&Ask::Abandon).await {
                    tracing::info!(
                        error = error_chain(&error),
                        "the end of the migration did not reach the other pod"
                    );
                }
                Err(error.into())
            }
        }
    }

    /// Has the other launcher start a QEMU that waits for the guest.
    async fn prepare(&self, peer: &mut Peer, plan: &MigrationPlan) -> Result<Cookie, CopyError> {
        let begun = self.connection.begin(&self.domain, &self.migration).await;
        let (xml, cookie) = begun?;
        let ask = Ask::Prepare {
            id: plan.id.clone(),
            xml,
            cookie: WireCookie::from(&cookie),
            copied_disks: plan.copied_disks.clone(),
            post_copy: self.migration.flags.post_copy,
        };
        Ok(peer.ask_for_cookie(&ask).await?)
    }

    /// Waits for the end of the copy, or for the switch to post-copy, and reports its progress.
    async fn perform(
        &self,
        peer: &mut Peer,
        cookie: &Cookie,
    ) -> Result<(Cookie, CopyState), libvirt::Error> {
        let performed = self
            .connection
            .perform(&self.domain, &self.migration, cookie);
        tokio::pin!(performed);
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_asked_to_end = false;
        let mut has_asked_to_switch = false;
        loop {
            tokio::select! {
                performed = &mut performed => {
                    let cookie = performed?;
                    let state = if has_asked_to_switch {
                        self.copy_state().await
                    } else {
                        CopyState::All
                    };
                    return Ok((cookie, state));
                }
                () = self.cancelled.cancelled(), if !is_asked_to_end => {
                    is_asked_to_end = true;
                    self.abort().await;
                }
                // The job may not have begun when it was cancelled.
                _ = ticks.tick() => if is_asked_to_end {
                    self.abort().await;
                } else {
                    if self.switch.is_cancelled() {
                        has_asked_to_switch |= self.migration.flags.post_copy;
                        self.start_post_copy(peer).await;
                    }
                    self.report().await;
                },
            }
        }
    }

    /// May be repeated until the copy has been switched.
    async fn start_post_copy(&self, peer: &mut Peer) {
        if !self.migration.flags.post_copy {
            return;
        }
        if let Err(error) = peer.command(&Ask::Hold).await {
            tracing::info!(
                error = error_chain(&error),
                "the other pod is not ready for post-copy"
            );
            return;
        }
        failpoints::after("virt-launcher/migration/held");
        match self.connection.start_post_copy(&self.domain).await {
            Ok(()) => {
                failpoints::after("virt-launcher/migration/start-post-copy");
                tracing::info!("the copy is being switched to post-copy");
            }
            Err(error) => tracing::info!(
                error = error_chain(&error),
                "the copy was not switched to post-copy"
            ),
        }
    }

    /// How much was copied, after the switch was asked for. In doubt the guest does not go on here.
    async fn copy_state(&self) -> CopyState {
        match self.connection.state(&self.domain).await {
            Ok(state) if !post_copy::is_in(state) => CopyState::All,
            Ok(_) => CopyState::Switched,
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "whether the copy was switched to post-copy is unknown"
                );
                CopyState::Switched
            }
        }
    }

    async fn abort(&self) {
        if let Err(error) = self.connection.abort_job(&self.domain).await {
            tracing::debug!(error = error_chain(&error), "no job to cancel");
        }
    }

    async fn report(&self) {
        report_progress(&self.connection, &self.domain, &self.events).await;
    }
}

pub(super) async fn report_progress(
    connection: &Connection,
    domain: &Domain,
    events: &mpsc::Sender<Event>,
) {
    match connection.job(domain).await {
        // A report that does not fit is followed by another.
        Ok(job) => drop(events.try_send(Event::Progress(progress(&job)))),
        Err(error) => tracing::debug!(error = error_chain(&error), "no progress is known"),
    }
}

/// What restores the state of a guest that goes on here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restore {
    Resume,
    Suspend,
}

/// The steps after a migration that failed: libvirt has restored the state from before the migration, or not.
fn after_failure(state: libvirt::DomainState, stays_paused: bool) -> Vec<Restore> {
    use libvirt::DomainState::{Blocked, Paused, Running};
    match (state, stays_paused) {
        (Running | Blocked, true) => vec![Restore::Suspend],
        // Only a pause that begins outside of a migration is shown as one of the user.
        (Paused(PausedReason::Migration), true) => vec![Restore::Resume, Restore::Suspend],
        (Paused(PausedReason::Migration | PausedReason::User), false) => vec![Restore::Resume],
        _ => Vec::new(),
    }
}

/// Why the copy of a guest in this state is out of date.
fn unlike_its_copy(status: Option<Status>) -> Option<&'static str> {
    match status {
        None => Some("the connection to libvirt has ended"),
        // The handler may have reported the end already.
        Some(Status::Ended(_) | Status::Startable) => Some("the guest has ended"),
        Some(Status::Alive(DomainState::Running)) => {
            Some("the guest went on in its pod after it had been copied")
        }
        Some(Status::Alive(_)) => None,
    }
}

fn progress(job: &Job) -> MigrationProgress {
    let pages = job.dirty_rate.zip(job.page_bytes);
    MigrationProgress {
        elapsed_ms: job.elapsed_ms,
        total_bytes: job.total_bytes,
        processed_bytes: job.processed_bytes,
        remaining_bytes: job.remaining_bytes,
        rate: job.rate,
        dirty_rate: pages.map(|(pages, bytes)| pages.saturating_mul(bytes)),
        downtime_ms: job.downtime_ms,
    }
}

#[cfg(test)]
mod tests {
    use launcher_channel::StopReason;

    use super::*;

    #[test]
    fn pause_of_a_user_holds_after_a_failed_migration() {
        use Restore::{Resume, Suspend};
        use libvirt::DomainState::{Paused, Running};
        let by_user = Paused(PausedReason::User);
        let by_copy = Paused(PausedReason::Migration);
        let by_error = Paused(PausedReason::IoError);
        for (state, stays_paused, expected) in [
            (Running, false, vec![]),
            (Running, true, vec![Suspend]),
            (by_copy, false, vec![Resume]),
            (by_copy, true, vec![Resume, Suspend]),
            // Its user has resumed it during the copy.
            (by_user, false, vec![Resume]),
            (by_user, true, vec![]),
            (by_error, false, vec![]),
            (by_error, true, vec![]),
        ] {
            let found = after_failure(state, stays_paused);
            assert_eq!(found, expected, "{state:?} {stays_paused}");
        }
    }

    #[test]
    fn only_a_guest_that_is_as_it_was_copied_is_given_up() {
        use DomainState::{PausedByIoError, PausedByUser, PausedOther, Running};
        for paused in [PausedByUser, PausedByIoError, PausedOther] {
            let status = Some(Status::Alive(paused));
            assert_eq!(unlike_its_copy(status), None, "{paused:?}");
        }
        let changed = [
            None,
            Some(Status::Startable),
            Some(Status::Ended(StopReason::Crashed)),
            Some(Status::Alive(Running)),
        ];
        for status in changed {
            assert!(unlike_its_copy(status).is_some(), "{status:?}");
        }
    }
}
