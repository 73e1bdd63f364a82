//! The steps of one backup.
//!
//! File systems of the guest are frozen only until libvirt has begun the job, which copies all disks as they are
//! at that moment. The deadline of the thaw is recorded before the freeze (`agent/thaw.rs`), so that no crash
//! leaves a guest frozen.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{AgentQuestion, BackupPlan, BackupStage, Quiesce};
use libvirt::{Connection, Domain, JobPhase};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::backup_files::{Files, Made};
use super::backup_xml::{self, Copy};
use super::domain_xml::LiveDomain;
use super::qmp::QmpError;
use crate::agent::AgentCaller;
use crate::settings;

/// Between two looks at the job.
pub(super) const POLL: Duration = Duration::from_millis(500);
/// How long a cancelled job may take to end.
pub(super) const CANCEL_LIMIT: Duration = Duration::from_mins(2);
/// How long the guest's file systems may be frozen.
const FREEZE_LIMIT: Duration = Duration::from_secs(30);
/// Progress is reported in steps of so many percent.
const STEP: u64 = 10;
/// The prefix of the alias of a device that the user named.
const ALIAS: &str = "ua-";

/// The last phase of a backup.
const CHECKSUMS: &str = "checksums of the files are computed";

/// What a backup reports.
#[derive(Debug)]
pub(super) enum Note {
    Quiesced(Quiesce),
    Percent(u8),
    /// The disks are offered.
    Offered,
    /// What it does, besides copying.
    Detail(&'static str),
    /// With the reason, if it was interrupted.
    Ended(Result<BackupStage, String>),
    /// What an earlier backup had left in QEMU was to be ended.
    Cleared(Result<(), BackupError>),
}

/// Who freezes the guest's file systems.
#[derive(Debug)]
pub(super) enum Freezer {
    Agent(AgentCaller),
    None(Quiesce),
}

/// What a run does.
#[derive(Debug)]
pub(super) enum Work {
    Make(Freezer),
    /// Ends what an earlier launcher has begun.
    Cancel,
    /// The same, with the reason why the backup has failed.
    GiveUp(&'static str),
}

/// One backup.
#[derive(Debug)]
pub(super) struct BackupRun {
    pub(super) connection: Connection,
    pub(super) domain: Domain,
    pub(super) guest: settings::Guest,
    pub(super) plan: BackupPlan,
    pub(super) files: Files,
    /// Leads to the directory while the disks are offered.
    pub(super) link: PathBuf,
    pub(super) notes: mpsc::Sender<Note>,
    pub(super) cancel: CancellationToken,
    pub(super) turn: Arc<Mutex<()>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BackupError {
    #[error(transparent)]
    Libvirt(#[from] libvirt::Error),
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("an earlier job on the guest's disks does not end")]
    Earlier,
    #[error("QEMU has ended its copy and does not close the file; restart or migrate the VM")]
    Open(#[source] QmpError),
    #[error("the guest has no disk that can be copied")]
    NoDisk,
    #[error("the guest has no disk of volume {0}")]
    Missing(String),
    #[error("read the domain's XML")]
    Domain(#[source] crate::xml::Error),
    #[error("write the XML of the backup")]
    Render(#[from] quick_xml::SeError),
    #[error("lay out the copy of a disk")]
    Layout(#[from] disk_image::BlueprintError),
    #[error("something replaced the new copy of disk {0} in the claim")]
    Replaced(String),
    #[error("QEMU could not copy the disks: {0}")]
    Job(String),
    #[error("write the backup to its storage")]
    Storage(#[from] io::Error),
}

impl BackupError {
    /// Whether nothing is known about the job: the handler requests the backup again, or cancels it, and either ends
    /// the job first.
    fn interrupts(&self) -> bool {
        match self {
            Self::Libvirt(error) => {
                error.is_closed() || matches!(error, libvirt::Error::TimedOut { .. })
            }
            Self::Earlier => true,
            _ => false,
        }
    }
}

/// How the copy ended.
pub(super) enum Copied {
    Whole,
    Cancelled,
}

/// What QEMU is to do, all at one moment.
pub(super) enum Start {
    /// To copy or offer all blocks, by this XML for libvirt.
    Full(String),
    /// To copy what has changed, by this transaction.
    Increment(serde_json::Value),
}

impl BackupRun {
    pub(super) async fn make(self, work: Work) {
        let _turn = self.turn.lock().await;
        let made = match work {
            Work::Make(freezer) if self.plan.is_offer => self.offer(freezer).await,
            Work::Make(freezer) => self.back_up(freezer).await,
            Work::Cancel => self.end_earlier().await.map(|()| BackupStage::Cancelled),
            Work::GiveUp(why) => {
                let ended = self.end_earlier().await;
                ended.map(|()| BackupStage::Failed(why.to_owned()))
            }
        };
        let stage = match made {
            Ok(stage) => Ok(stage),
            Err(error) => self.end_of(&error).await,
        };
        if matches!(stage, Ok(BackupStage::Failed(_) | BackupStage::Cancelled)) {
            self.discard().await;
        }
        self.note(Note::Ended(stage)).await;
    }

    /// Removes what a backup has left that is not to be.
    async fn discard(&self) {
        if let Err(error) = self.with_files(Files::discard).await {
            tracing::warn!(
                error = error_chain(&error),
                "failed to remove the files of a backup"
            );
        }
        // Without a manifest nothing builds on it, and the next backup removes it.
        if let Err(error) = self.remove_own_checkpoint().await {
            tracing::info!(
                error = error_chain(&error),
                "failed to remove the checkpoint of a backup"
            );
        }
    }

    /// The end of a backup that met an error; the reason while its job may still write.
    async fn end_of(&self, error: &BackupError) -> Result<BackupStage, String> {
        let left = match error {
            error if error.interrupts() => Some(error_chain(error)),
            BackupError::Open(_) => None,
            _ => match self.end_earlier().await {
                // Nothing writes to it any more.
                Ok(()) | Err(BackupError::Open(_)) => None,
                Err(left) => Some(error_chain(&left)),
            },
        };
        let why = error_chain(error);
        if let Some(left) = left {
            tracing::warn!(
                error = why,
                left,
                "a backup was interrupted, and its job may still run"
            );
            return Err(why);
        }
        Ok(BackupStage::Failed(why))
    }

    async fn back_up(&self, freezer: Freezer) -> Result<BackupStage, BackupError> {
        self.end_earlier().await?;
        let directory = Arc::new(self.with_files(Files::prepare).await?);
        self.remove_own_checkpoint().await?;
        let mut basis = self.basis().await?;
        let start = if let Some(parent) = basis.lineage.parent.clone() {
            Start::Increment(
                self.prepare_increment(&mut basis, &parent, &directory)
                    .await?,
            )
        } else {
            let xml = backup_xml::render(&self.copies().await?)?;
            // What an earlier job has left would look like the end of this one.
            self.connection.take_ended_job(&self.domain).await?;
            self.mark(&mut basis).await?;
            Start::Full(xml)
        };
        let quiesced = self.begin(freezer, &start).await?;
        let copied = match start {
            Start::Full(_) => self.follow().await?,
            Start::Increment(_) => self.follow_increment().await?,
        };
        match copied {
            Copied::Cancelled => Ok(BackupStage::Cancelled),
            Copied::Whole => {
                self.note(Note::Detail(CHECKSUMS)).await;
                let (guest, cancel) = (self.guest.clone(), self.cancel.clone());
                let lineage = basis.lineage.clone();
                let made = Made {
                    quiesced,
                    lineage,
                    parent_sha256: basis.parent_sha256,
                };
                let bytes = self
                    .with_files(move |files| files.settle(&directory, &guest, &made, &cancel))
                    .await?;
                let lineage = basis.lineage;
                Ok(match bytes {
                    Some(bytes) => BackupStage::Done { bytes, lineage },
                    None => BackupStage::Cancelled,
                })
            }
        }
    }

    /// Ends a job that an earlier launcher has begun.
    pub(super) async fn end_earlier(&self) -> Result<(), BackupError> {
        let deadline = Instant::now() + CANCEL_LIMIT;
        loop {
            let job = self.connection.disk_job(&self.domain).await?;
            if job.phase != JobPhase::Running {
                return self.qemu().end_jobs().await;
            }
            if Instant::now() >= deadline {
                return Err(BackupError::Earlier);
            }
            if job.is_backup {
                self.abort().await?;
            }
            sleep(POLL).await;
        }
    }

    async fn abort(&self) -> Result<(), BackupError> {
        match self.connection.abort_job(&self.domain).await {
            // It may have ended meanwhile, or is about to end.
            Err(error @ libvirt::Error::Remote(_)) => {
                tracing::info!(
                    error = error_chain(&error),
                    "the backup job was not aborted"
                );
                Ok(())
            }
            done => Ok(done?),
        }
    }

    pub(super) async fn copies(&self) -> Result<Vec<Copy>, BackupError> {
        let xml = self.connection.xml(&self.domain).await?;
        let live = LiveDomain::parse(&xml).map_err(BackupError::Domain)?;
        if self.files.volumes.is_empty() {
            return Err(BackupError::NoDisk);
        }
        let copy = |volume: &String| {
            let mut disks = live.disks.iter();
            let disk = disks.find(|disk| disk.alias.strip_prefix(ALIAS) == Some(volume.as_str()));
            let disk = disk.ok_or_else(|| BackupError::Missing(volume.clone()))?;
            Ok(Copy {
                target: disk.target.clone(),
                volume: volume.clone(),
                path: self.files.path(volume).to_string_lossy().into_owned(),
            })
        };
        self.files.volumes.iter().map(copy).collect()
    }

    /// Begins the job while the guest's file systems are frozen; returns whether they were.
    pub(super) async fn begin(&self, freezer: Freezer, start: &Start) -> Result<bool, BackupError> {
        let agent = match freezer {
            Freezer::Agent(agent) => agent,
            Freezer::None(quiesce) => {
                let begun = self.start(start).await;
                failpoints::after("virt-launcher/backup/begin");
                begun?;
                return Ok(self.note_quiesce(quiesce).await);
            }
        };
        let since = Instant::now();
        let frozen = agent.ask(freeze()).await;
        let begun = self.start(start).await;
        let took = since.elapsed();
        // A slow guest may freeze after the call has failed: the timer thaws it.
        if frozen.is_ok()
            && let Err(why) = agent.ask(AgentQuestion::Thaw).await
        {
            tracing::warn!(
                why,
                "failed to thaw the guest; it is thawed at its deadline"
            );
        }
        begun?;
        Ok(self.note_quiesce(quiesce(frozen, took)).await)
    }

    async fn start(&self, start: &Start) -> Result<(), BackupError> {
        match start {
            Start::Full(xml) => Ok(self.connection.begin_backup(&self.domain, xml).await?),
            Start::Increment(transaction) => self.begin_increment(transaction).await,
        }
    }

    async fn note_quiesce(&self, quiesce: Quiesce) -> bool {
        let quiesced = quiesce == Quiesce::Succeeded;
        self.note(Note::Quiesced(quiesce)).await;
        quiesced
    }

    pub(super) async fn follow(&self) -> Result<Copied, BackupError> {
        let mut reported = 0;
        let mut deadline = None;
        loop {
            let job = match self.connection.disk_job(&self.domain).await {
                // QEMU waits for its storage, and copies on after that.
                Err(libvirt::Error::TimedOut { .. }) if !self.cancel.is_cancelled() => {
                    sleep(POLL).await;
                    continue;
                }
                job => job?,
            };
            if job.phase != JobPhase::Running || !job.is_backup {
                break;
            }
            if self.cancel.is_cancelled() {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + CANCEL_LIMIT);
                if Instant::now() >= deadline {
                    return Err(BackupError::Earlier);
                }
                self.abort().await?;
            } else if let Some(percent) = percent(job.processed, job.total, reported) {
                reported = percent;
                self.note(Note::Percent(percent)).await;
            }
            tokio::select! {
                () = self.cancel.cancelled(), if deadline.is_none() => {}
                () = sleep(POLL) => {}
            }
        }
        let ended = self.connection.take_ended_job(&self.domain).await?;
        match ended.phase {
            JobPhase::Completed if ended.is_backup => Ok(Copied::Whole),
            _ if self.cancel.is_cancelled() => Ok(Copied::Cancelled),
            _ => {
                Err(BackupError::Job(ended.message.unwrap_or_else(|| {
                    "the job ended without a result".to_owned()
                })))
            }
        }
    }

    /// Works on the files on a thread, which may hang with the storage.
    pub(super) async fn with_files<T, F>(&self, work: F) -> io::Result<T>
    where
        F: FnOnce(&Files) -> io::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let files = self.files.clone();
        let done = tokio::task::spawn_blocking(move || work(&files)).await;
        done.map_err(io::Error::other)?
    }

    pub(super) async fn note(&self, note: Note) {
        if self.notes.send(note).await.is_err() {
            tracing::info!("a backup reports, and the guest's task has ended");
        }
    }
}

fn freeze() -> AgentQuestion {
    AgentQuestion::Freeze {
        thaw_after_seconds: Some(FREEZE_LIMIT.as_secs()),
    }
}

/// Whether the file systems were frozen when the copy began, so long after the freeze was requested.
fn quiesce(frozen: Result<(), String>, took: Duration) -> Quiesce {
    match frozen {
        Ok(()) if took < FREEZE_LIMIT => Quiesce::Succeeded,
        Ok(()) => Quiesce::Failed("the guest was thawed before the copy began".to_owned()),
        Err(why) => Quiesce::Failed(why),
    }
}

/// The next step of the progress, if it has been reached.
pub(super) fn percent(processed: u64, total: u64, reported: u8) -> Option<u8> {
    let share = u128::from(processed) * 100;
    let share = share.checked_div(u128::from(total))?.min(100);
    let step = u64::try_from(share).ok()? / STEP * STEP;
    u8::try_from(step).ok().filter(|step| *step > reported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freeze_counts_only_if_it_lasts_until_the_copy_begins() {
        let short = Duration::from_secs(1);
        assert_eq!(quiesce(Ok(()), short), Quiesce::Succeeded);
        let late = quiesce(Ok(()), FREEZE_LIMIT);
        assert!(matches!(late, Quiesce::Failed(_)), "{late:?}");
        let refused = quiesce(Err("no".to_owned()), short);
        assert_eq!(refused, Quiesce::Failed("no".to_owned()));
    }

    #[test]
    fn backup_has_no_end_while_its_job_may_run() {
        let timed_out = libvirt::Error::TimedOut {
            procedure: "p",
            limit: POLL,
        };
        for (error, expected) in [
            (BackupError::Libvirt(libvirt::Error::Closed), true),
            (BackupError::Libvirt(timed_out), true),
            (BackupError::Earlier, true),
            (BackupError::Open(QmpError::Malformed("c")), false),
            (BackupError::NoDisk, false),
            (BackupError::Job("no space".to_owned()), false),
        ] {
            assert_eq!(error.interrupts(), expected, "{error}");
        }
    }

    #[test]
    fn progress_is_reported_in_steps() {
        for (processed, total, reported, expected) in [
            (0, 0, 0, None),
            (9, 100, 0, None),
            (19, 100, 0, Some(10)),
            (19, 100, 10, None),
            (100, 100, 90, Some(100)),
            (200, 100, 0, Some(100)),
            (u64::MAX, u64::MAX, 0, Some(100)),
        ] {
            let found = percent(processed, total, reported);
            assert_eq!(found, expected, "{processed} {total} {reported}");
        }
    }
}
