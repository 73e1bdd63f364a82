//! The launcher of the pod that the guest leaves.

use error_chain::error_chain;
use launcher_channel::{
    DomainState, MAX_PARALLEL_CONNECTIONS, MigrationCompression, MigrationPlan, MigrationSocket,
    MigrationStage, StopReason,
};
use libvirt::{
    Compression, Connection, Cookie, Domain, Migration, MigrationFlags, MigrationParameters,
    Outcome, Parallel, PausedReason,
};
use tokio_util::sync::CancellationToken;

use super::copying::{Copied, CopyState, Copying};
use super::peer::{Ask, Origin, WireCookie};
use super::{Event, pod_images, post_copy};
use crate::guest::record::{MigrationRecord, MigrationStep};
use crate::guest::refusal::Refusal;
use crate::guest::status::Status;
use crate::guest::task::Guest;

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

/// Connections of the memory besides the one for all else; `None` for that one alone.
pub(super) fn parallel(connections: u8, compression: MigrationCompression) -> Option<Parallel> {
    let compression = match compression {
        MigrationCompression::None => Compression::None,
        MigrationCompression::Zstd => Compression::Zstd,
    };
    (connections > 0).then_some(Parallel {
        connections,
        compression,
    })
}

fn migration(plan: &MigrationPlan) -> Migration {
    let connections = plan.parallel_connections.min(MAX_PARALLEL_CONNECTIONS);
    let parallel = parallel(connections, plan.compression);
    Migration {
        flags: MigrationFlags {
            auto_converge: plan.auto_converge,
            trusts_disks: plan.is_within_node,
            ..flags(&plan.copied_disks, plan.post_copy)
        },
        parameters: MigrationParameters {
            bandwidth_mib: plan.bandwidth_mib,
            // QEMU has not both.
            parallel: parallel.filter(|_| !plan.post_copy),
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
        let own = self.store.record().map(|record| &record.plan);
        let origin = own.map(Origin::of);
        let images = own.map(|plan| pod_images::paths(&plan.prepare));
        let images = images.unwrap_or_default();
        let copying = self.tasks.spawn(async move {
            let guest = Copying {
                connection,
                domain,
                migration: migration(&plan),
                pauses: plan.pauses && !plan.post_copy,
                origin,
                images,
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
        unlike_its_copy(status).map(str::to_owned)
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
            // If it goes on in the other pod, it is not to be reported as failed.
            if self.migrations.switch.is_cancelled() {
                self.set_stage(MigrationStage::Copying);
            }
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
        match step {
            None
            | Some(MigrationStep::Incoming | MigrationStep::Switched | MigrationStep::Following) => {
                Ok(())
            }
            Some(MigrationStep::Arrived) => {
                self.set_stage(MigrationStage::Done);
                Box::pin(self.refresh_links()).await;
                Ok(())
            }
            Some(MigrationStep::GivenUp) => {
                self.end_given_up().await;
                Ok(())
            }
            Some(MigrationStep::Copying) => match self.resume_after_copy().await? {
                CopyEnd::Switched => {
                    self.record_switch();
                    self.settle_post_copy().await
                }
                CopyEnd::Stays => {
                    self.store.set_migration(None)?;
                    if let Some(report) = &mut self.migrations.report
                        && report.stage == MigrationStage::Copying
                    {
                        let message = "the launcher or libvirt was restarted during the copy";
                        report.stage = MigrationStage::Failed(message.to_owned());
                    }
                    // An earlier move to this pod may have left it to be done.
                    Box::pin(self.refresh_links()).await;
                    Ok(())
                }
            },
        }
    }

    /// Ends the copy, and has the guest go on here unless it goes on in the other pod.
    async fn resume_after_copy(&mut self) -> Result<CopyEnd, Refusal> {
        self.observe().await?;
        // libvirt ends a QEMU by itself whose client has died in post-copy, when all of the memory has left it.
        let has_moved = self.status == Some(Status::Ended(StopReason::Migrated));
        // A QEMU that has switched must not be told to stop copying.
        if has_moved || self.was_switched().await? {
            return Ok(CopyEnd::Switched);
        }
        if !self.is_alive() {
            return Ok(CopyEnd::Stays);
        }
        let (Some(connection), Some(domain)) = (self.connection(), self.domain()) else {
            return Err(libvirt::Error::Closed.into());
        };
        if let Err(error) = connection.abort_job(&domain).await {
            tracing::debug!(error = error_chain(&error), "no job is left");
        }
        let stays_paused = self.store.migration().is_some_and(|one| one.stays_paused);
        let state = connection.state(&domain).await?;
        // It may have switched meanwhile, and then the copy was not stopped.
        let Some(steps) = after_failure(state, stays_paused) else {
            return Ok(CopyEnd::Switched);
        };
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
        self.observe().await?;
        Ok(CopyEnd::Stays)
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

/// Where a guest goes on whose copy has not ended as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyEnd {
    Stays,
    /// The other pod has it, and the rest of its memory follows.
    Switched,
}

/// What restores the state of a guest that goes on here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restore {
    Resume,
    Suspend,
}

/// The steps after a migration that failed: libvirt has restored the state from before the migration, or not. `None` if
/// the guest must not go on here, since it is in post-copy.
fn after_failure(state: libvirt::DomainState, stays_paused: bool) -> Option<Vec<Restore>> {
    use libvirt::DomainState::{Blocked, Paused, Running};
    if post_copy::is_in(state) {
        return None;
    }
    Some(match (state, stays_paused) {
        (Running(_) | Blocked, true) => vec![Restore::Suspend],
        // Only a pause that begins outside of a migration is shown as one of the user.
        (Paused(PausedReason::Migration), true) => vec![Restore::Resume, Restore::Suspend],
        (Paused(PausedReason::Migration | PausedReason::User), false) => vec![Restore::Resume],
        _ => Vec::new(),
    })
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

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::guest::record::RecordStore;
    use crate::guest::status::Phase;
    use crate::guest::task::tests::{parts, plan};
    use crate::settings::Paths;

    /// The launcher has died before it could record the switch, and libvirt has ended its QEMU since.
    #[tokio::test]
    async fn guest_that_has_left_in_post_copy_has_moved() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let mut store = RecordStore::open(&paths.record()).unwrap();
        store.set_plan(plan()).unwrap();
        let record = MigrationRecord {
            id: "m".to_owned(),
            step: MigrationStep::Copying,
            stays_paused: false,
        };
        store.set_migration(Some(record)).unwrap();
        store.advance(Phase::Ended(StopReason::Migrated)).unwrap();
        let (sender, _states) = watch::channel(None);
        let mut guest = Guest::new(parts(&paths, store, sender));
        guest.settle_migration().await.unwrap();
        assert!(guest.store.is_given_up());
        let report = guest.migration_report().unwrap();
        assert_eq!(report.stage, MigrationStage::Done);
    }

    #[test]
    fn pause_of_a_user_holds_after_a_failed_migration() {
        use Restore::{Resume, Suspend};
        use libvirt::DomainState::{Paused, Running};
        let by_user = Paused(PausedReason::User);
        let by_copy = Paused(PausedReason::Migration);
        let by_error = Paused(PausedReason::IoError);
        let running = Running(libvirt::RunningReason::Other);
        for (state, stays_paused, expected) in [
            (running, false, vec![]),
            (running, true, vec![Suspend]),
            (by_copy, false, vec![Resume]),
            (by_copy, true, vec![Resume, Suspend]),
            // Its user has resumed it during the copy.
            (by_user, false, vec![Resume]),
            (by_user, true, vec![]),
            (by_error, false, vec![]),
            (by_error, true, vec![]),
        ] {
            let found = after_failure(state, stays_paused);
            assert_eq!(found, Some(expected), "{state:?} {stays_paused}");
        }
        // Issue: a guest that was switched while its copy was being stopped was forgotten.
        for reason in [PausedReason::Postcopy, PausedReason::PostcopyFailed] {
            assert_eq!(after_failure(Paused(reason), false), None, "{reason:?}");
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
