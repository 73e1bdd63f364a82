//! Backups: copies of the guest's disks, made by a job of libvirt while the guest runs.
//!
//! A task of its own makes the backup ([`BackupRun`]), as the copy lasts as long as the storage needs.
//!
//! **Invariant**: a backup is reported as done only when all of it is on disk. One that failed or was cancelled
//! leaves no file, unless the storage refuses to remove it. A backup that a restart of libvirtd or of this
//! launcher has interrupted, or whose job does not end, is reported as neither: the handler requests it again, and it
//! begins anew, or cancels it.

use std::sync::Arc;

use error_chain::error_chain;
use launcher_channel::{BackupPlan, BackupReport, BackupStage, DomainState, Quiesce};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::agent_link::AgentLink;
use super::backup_files::Files;
use super::backup_run::{BackupError, BackupRun, Freezer, Note, Work};
use super::leftovers::Leftovers;
use super::refusal::Refusal;
use super::status::Status;
use super::task::Guest;

/// A backup reports little, and the guest's task reads soon.
const NOTES: usize = 8;
/// The reason of an offer that has failed.
const INTERRUPTED: &str =
    "the launcher or libvirt of the guest was restarted while its disks were offered";
/// The agent's word for frozen file systems.
const FROZEN: &str = "frozen";

#[derive(Debug)]
pub(super) struct Backups {
    report: Option<BackupReport>,
    /// The last one that was interrupted, and why.
    interrupted: Option<(BackupPlan, String)>,
    /// The last one whose disks were offered: they are never offered again, as they would be those of another moment.
    offered: Option<BackupPlan>,
    /// Why the offer that is being ended was not recorded.
    unrecorded: Option<String>,
    pub(super) leftovers: Leftovers,
    /// Whose turn it is to begin and end jobs in QEMU.
    pub(super) turn: Arc<Mutex<()>>,
    /// Cancels the backup that is in progress.
    cancel: CancellationToken,
    sender: mpsc::Sender<Note>,
    notes: mpsc::Receiver<Note>,
}

impl Backups {
    /// `last` is the last backup of an earlier launcher of this pod; one that has not ended was interrupted.
    /// `has_started` says whether the guest may run already.
    pub(super) fn new(last: Option<BackupReport>, has_started: bool) -> Self {
        let (sender, notes) = mpsc::channel(NOTES);
        let offered = last
            .as_ref()
            .filter(|report| report.stage == BackupStage::Offered);
        Self {
            offered: offered.map(|report| report.plan.clone()),
            report: last.filter(|report| !report.stage.is_running()),
            interrupted: None,
            unrecorded: None,
            turn: Arc::default(),
            leftovers: if has_started {
                Leftovers::Unknown
            } else {
                Leftovers::None
            },
            cancel: CancellationToken::new(),
            sender,
            notes,
        }
    }

    pub(super) async fn next_note(&mut self) -> Note {
        match self.notes.recv().await {
            Some(note) => note,
            // `sender` lives as long as this.
            None => std::future::pending().await,
        }
    }

    pub(super) fn report(&self) -> Option<&BackupReport> {
        self.report.as_ref()
    }

    pub(super) fn is_running(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.stage.is_running())
    }

    fn is_offering(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.stage == BackupStage::Offered)
    }

    /// Whether disks are being copied, or may be.
    pub(super) fn is_busy(&self) -> bool {
        self.is_running() || self.leftovers != Leftovers::None
    }

    pub(super) fn sender(&self) -> mpsc::Sender<Note> {
        self.sender.clone()
    }

    /// Whether the disk of the volume is being copied, or may be.
    pub(super) fn copies(&self, volume: &str) -> bool {
        if !self.is_running() {
            return self.is_busy();
        }
        let report = self.report.as_ref();
        report.is_some_and(|report| report.plan.disks.iter().any(|disk| disk == volume))
    }

    /// Whether the report is about the backup: the guest may have got or lost disks since it began.
    fn is_of(&self, plan: &BackupPlan) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.is_of(plan))
    }

    /// What a request for the backup is to do.
    fn work(&self, plan: &BackupPlan, freezer: Freezer) -> Work {
        let offered = self.offered.as_ref();
        let was_offered = offered.is_some_and(|offered| {
            offered.volume == plan.volume && offered.directory == plan.directory
        });
        if was_offered {
            Work::GiveUp(INTERRUPTED)
        } else {
            Work::Make(freezer)
        }
    }
}

impl Guest {
    /// Starts the backup, unless it was started before.
    pub(super) async fn back_up(&mut self, plan: BackupPlan) -> Result<(), Refusal> {
        self.ensure_known().await?;
        if self.backups.is_of(&plan) {
            return Ok(());
        }
        let freezer = self.freezer(&plan);
        let work = self.backups.work(&plan, freezer);
        self.run_backup(plan, work)?;
        failpoints::after("virt-launcher/backup/start");
        Ok(())
    }

    /// Cancels the backup, whoever has begun it, and removes its files.
    pub(super) async fn cancel_backup(&mut self, plan: BackupPlan) -> Result<(), Refusal> {
        self.ensure_known().await?;
        if self.backups.is_of(&plan) {
            self.backups.cancel.cancel();
            return Ok(());
        }
        self.run_backup(plan, Work::Cancel)?;
        self.backups.cancel.cancel();
        Ok(())
    }

    fn run_backup(&mut self, plan: BackupPlan, work: Work) -> Result<(), Refusal> {
        let Some(path) = plan.path() else {
            return Err(Refusal::BadBackup(plan.directory));
        };
        if self.backups.is_running() {
            return Err(Refusal::BackingUp);
        }
        if self.dumps.is_running() {
            return Err(Refusal::Dumping);
        }
        if self.store.is_given_up() {
            return Err(Refusal::NotRunning);
        }
        if self.store.is_moving() {
            return Err(Refusal::Migrating);
        }
        let (true, Some(connection), Some(domain)) =
            (self.is_alive(), self.connection(), self.domain())
        else {
            return Err(Refusal::NotRunning);
        };
        tracing::info!(path, "backup started");
        let cancel = CancellationToken::new();
        let run = BackupRun {
            connection,
            domain,
            guest: self.identity.clone(),
            files: Files {
                directory: path.into(),
                volumes: plan.disks.clone(),
            },
            plan: plan.clone(),
            link: self.paths.offer(),
            notes: self.backups.sender.clone(),
            turn: Arc::clone(&self.backups.turn),
            cancel: cancel.clone(),
        };
        self.backups.cancel = cancel;
        self.backups.unrecorded = None;
        let interrupted = self.backups.interrupted.take();
        let mut report = BackupReport {
            plan,
            stage: BackupStage::Running { percent: 0 },
            quiesce: None,
            detail: None,
        };
        report.detail = interrupted
            .filter(|(plan, _)| report.is_of(plan))
            .map(|(_, why)| format!("it began again, since it was interrupted: {why}"));
        self.backups.report = Some(report);
        self.tasks.spawn(run.make(work));
        Ok(())
    }

    /// Who makes the guest write its caches to disk, or why nobody does.
    fn freezer(&self, plan: &BackupPlan) -> Freezer {
        let skipped = |why: &str| Freezer::None(Quiesce::Skipped(why.to_owned()));
        if !plan.quiesces {
            return skipped("the backup has skipQuiesce");
        }
        if self.status != Some(Status::Alive(DomainState::Running)) {
            return skipped("the guest is paused");
        }
        let AgentLink::Connected(agent) = &self.agent else {
            return skipped("the guest has no connected guest agent");
        };
        let report = self.agent.report();
        let freeze = report.and_then(|report| report.freeze);
        if freeze.as_deref() == Some(FROZEN) {
            return skipped(
                "its file systems are frozen by another request, which may thaw them at any time",
            );
        }
        Freezer::Agent(agent.caller())
    }

    pub(super) fn on_backup(&mut self, note: Note) {
        if let Some(report) = self.backups.on_note(note) {
            // Without the record, a later launcher makes the backup again.
            if let Err(error) = self.store.set_backup(report) {
                let error = error_chain(&error);
                tracing::warn!(error, "failed to record the backup");
                if self.backups.is_offering() {
                    self.backups.retract(&error);
                }
            }
        }
        self.publish();
    }
}

impl Backups {
    /// Ends an offer that this launcher failed to record, before virt-handler learns of it: a later launcher must not
    /// offer the disks of another moment.
    fn retract(&mut self, error: &str) {
        self.cancel.cancel();
        self.unrecorded = Some(format!("the launcher failed to record the offer: {error}"));
        if let Some(report) = &mut self.report {
            report.stage = BackupStage::Running { percent: 0 };
        }
    }

    /// Returns the report to record.
    fn on_note(&mut self, note: Note) -> Option<BackupReport> {
        if let Note::Cleared(done) = note {
            self.leftovers = match done {
                // Nothing copies any more.
                Ok(()) | Err(BackupError::Open(_)) => Leftovers::None,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "failed to end what a backup has left in QEMU");
                    Leftovers::Unknown
                }
            };
            return None;
        }
        let mut report = self.report.take()?;
        match note {
            Note::Quiesced(quiesce) => report.quiesce = Some(quiesce),
            Note::Percent(percent) => {
                if report.stage != BackupStage::Offered {
                    report.stage = BackupStage::Running { percent };
                }
            }
            Note::Offered => {
                tracing::info!(directory = report.plan.directory, "disks are offered");
                report.stage = BackupStage::Offered;
                self.offered = Some(report.plan.clone());
                self.report = Some(report.clone());
                return Some(report);
            }
            Note::Detail(detail) => report.detail = Some(detail.to_owned()),
            Note::Ended(Ok(stage)) => {
                tracing::info!(directory = report.plan.directory, ?stage, "backup ended");
                self.leftovers = Leftovers::None;
                report.stage = match (stage, self.unrecorded.take()) {
                    (BackupStage::Cancelled, Some(why)) => BackupStage::Failed(why),
                    (stage, _) => stage,
                };
                report.detail = None;
                self.report = Some(report.clone());
                return Some(report);
            }
            Note::Ended(Err(why)) => {
                tracing::info!(directory = report.plan.directory, why, "backup interrupted");
                self.leftovers = Leftovers::Unknown;
                self.interrupted = Some((report.plan, why));
                return None;
            }
            Note::Cleared(_) => {}
        }
        self.report = Some(report);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::qmp::QmpError;
    use super::*;

    fn running() -> BackupReport {
        BackupReport {
            plan: BackupPlan {
                disks: vec!["root".to_owned()],
                ..BackupPlan::default()
            },
            stage: BackupStage::Running { percent: 0 },
            quiesce: None,
            detail: None,
        }
    }

    #[test]
    fn disks_are_busy_until_no_job_is_left() {
        let busy = |backups: &Backups| {
            let copies = ["root", "data"].map(|volume| backups.copies(volume));
            (backups.is_busy(), copies)
        };
        let mut backups = Backups::new(None, false);
        assert_eq!(busy(&backups), (false, [false, false]));
        backups.report = Some(running());
        assert_eq!(busy(&backups), (true, [true, false]));
        // Its job may still run.
        let interrupted = Note::Ended(Err("why".to_owned()));
        assert_eq!(backups.on_note(interrupted), None);
        assert_eq!(backups.report(), None);
        assert_eq!(busy(&backups), (true, [true, true]));
        // The next attempt has ended it.
        backups.report = Some(running());
        let ended = backups.on_note(Note::Ended(Ok(BackupStage::Cancelled)));
        assert_eq!(ended.unwrap().stage, BackupStage::Cancelled);
        assert_eq!(busy(&backups), (false, [false, false]));

        // After a crash of the launcher.
        for (done, expected) in [
            (Ok(()), Leftovers::None),
            (
                Err(BackupError::Open(QmpError::Malformed("c"))),
                Leftovers::None,
            ),
            (Err(BackupError::Earlier), Leftovers::Unknown),
        ] {
            let mut backups = Backups::new(Some(running()), true);
            assert_eq!(busy(&backups), (true, [true, true]));
            backups.leftovers = Leftovers::Ending;
            assert!(backups.is_busy());
            assert_eq!(backups.on_note(Note::Cleared(done)), None);
            assert_eq!(backups.leftovers, expected);
        }
    }

    /// What a client has read must not go on with the disks of another moment.
    #[test]
    fn disks_are_offered_once() {
        let freezer = || Freezer::None(Quiesce::Skipped("why".to_owned()));
        let gives_up = |backups: &Backups| {
            let work = backups.work(&running().plan, freezer());
            matches!(work, Work::GiveUp(_))
        };
        let mut backups = Backups::new(None, false);
        backups.report = Some(running());
        assert!(!gives_up(&backups));
        let recorded = backups.on_note(Note::Offered).unwrap();
        assert_eq!(recorded.stage, BackupStage::Offered);
        assert!(backups.is_running() && backups.copies("root"));
        assert_eq!(backups.on_note(Note::Percent(30)), None);
        assert_eq!(backups.report(), Some(&recorded));
        assert_eq!(backups.on_note(Note::Ended(Err("why".to_owned()))), None);
        assert!(backups.report().is_none() && gives_up(&backups));
        // The next launcher.
        let backups = Backups::new(Some(recorded), true);
        assert!(backups.report().is_none() && gives_up(&backups));

        // The launcher failed to record it: virt-handler never learns of it, and it fails.
        let mut backups = Backups::new(None, false);
        backups.report = Some(running());
        assert!(backups.on_note(Note::Offered).is_some() && backups.is_offering());
        backups.retract("no space");
        assert!(backups.cancel.is_cancelled() && !backups.is_offering());
        let ended = backups.on_note(Note::Ended(Ok(BackupStage::Cancelled)));
        let BackupStage::Failed(why) = ended.unwrap().stage else {
            panic!("it has not failed");
        };
        assert!(why.ends_with("no space"), "{why}");
    }

    #[test]
    fn report_has_the_phase_until_the_end() {
        let mut backups = Backups::new(None, false);
        backups.report = Some(running());
        for note in [Note::Percent(30), Note::Detail("d")] {
            assert_eq!(backups.on_note(note), None);
        }
        let report = backups.report().unwrap();
        assert_eq!(report.stage, BackupStage::Running { percent: 30 });
        assert_eq!(report.detail.as_deref(), Some("d"));
        let ended = backups.on_note(Note::Ended(Ok(BackupStage::Cancelled)));
        assert_eq!(ended.as_ref(), backups.report());
        assert_eq!(ended.unwrap().detail, None);
    }
}
