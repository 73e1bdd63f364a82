//! Backups: copies of the guest's disks, made by a job of libvirt while the guest runs.
//!
//! A task of its own makes the backup ([`BackupRun`]), as the copy lasts as long as the storage needs.
//!
//! **Invariant**: a backup is reported as done only when all of it is on disk. One that failed or was cancelled
//! leaves no file, unless the storage refuses to remove it. A backup that a restart of libvirtd or of this
//! launcher has interrupted, or whose job does not end, is reported as neither: the handler requests it again, and it
//! begins anew, or cancels it.

use error_chain::error_chain;
use launcher_channel::{BackupPlan, BackupReport, BackupStage, DomainState, Quiesce};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::agent_link::AgentLink;
use super::backup_files::Files;
use super::backup_run::{BackupRun, Freezer, Note};
use super::refusal::Refusal;
use super::status::Status;
use super::task::Guest;

/// A backup reports little, and the guest's task reads soon.
const NOTES: usize = 8;
/// The agent's word for frozen file systems.
const FROZEN: &str = "frozen";

#[derive(Debug)]
pub(super) struct Backups {
    report: Option<BackupReport>,
    /// Cancels the backup that is in progress.
    cancel: CancellationToken,
    sender: mpsc::Sender<Note>,
    notes: mpsc::Receiver<Note>,
}

impl Backups {
    /// `last` is the last backup of an earlier launcher of this pod; one that has not ended was interrupted.
    pub(super) fn new(last: Option<BackupReport>) -> Self {
        let (sender, notes) = mpsc::channel(NOTES);
        Self {
            report: last.filter(|report| !report.stage.is_running()),
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

    /// Whether the disk of the volume is being copied.
    pub(super) fn copies(&self, volume: &str) -> bool {
        let report = self.report.as_ref().filter(|_| self.is_running());
        report.is_some_and(|report| report.plan.disks.iter().any(|disk| disk == volume))
    }

    /// Whether the report is about the backup: the guest may have got or lost disks since it began.
    fn is_of(&self, plan: &BackupPlan) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.is_of(plan))
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
        self.run_backup(plan, Some(freezer))?;
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
        self.run_backup(plan, None)?;
        self.backups.cancel.cancel();
        Ok(())
    }

    /// Without a freezer, only what an earlier launcher has begun is ended.
    fn run_backup(&mut self, plan: BackupPlan, freezer: Option<Freezer>) -> Result<(), Refusal> {
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
            notes: self.backups.sender.clone(),
            cancel: cancel.clone(),
        };
        self.backups.cancel = cancel;
        self.backups.report = Some(BackupReport {
            plan,
            stage: BackupStage::Running { percent: 0 },
            quiesce: None,
        });
        self.tasks.spawn(run.make(freezer));
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
        let Some(report) = &mut self.backups.report else {
            return;
        };
        match note {
            Note::Quiesced(quiesce) => report.quiesce = Some(quiesce),
            Note::Percent(percent) => report.stage = BackupStage::Running { percent },
            Note::Ended(Some(stage)) => {
                tracing::info!(directory = report.plan.directory, ?stage, "backup ended");
                report.stage = stage;
                // Without the record, a later launcher makes the backup again.
                if let Err(error) = self.store.set_backup(report.clone()) {
                    tracing::warn!(error = error_chain(&error), "failed to record the backup");
                }
            }
            Note::Ended(None) => {
                tracing::info!(directory = report.plan.directory, "backup interrupted");
                self.backups.report = None;
            }
        }
        self.publish();
    }
}
