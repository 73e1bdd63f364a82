//! Dumps of the guest's memory into a volume, and its whole state, which ends it.
//!
//! A task of its own asks libvirt for the dump, as it lasts as long as the storage needs. The guest stands
//! still meanwhile: QEMU pauses it and lets it go on, without libvirtd and this launcher. After a whole state
//! was saved, the guest's end is recorded once all of it is on disk (`observe`).
//!
//! **Invariant**: a dump is reported as done only when all of it is on disk. The file of one that failed is
//! empty, or gone. A dump that a restart of libvirtd or of this launcher has interrupted is reported as
//! neither: the handler requests it again, and it begins anew.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{DumpPlan, DumpReport, DumpStage};
use libvirt::{Connection, Domain};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::refusal::Refusal;
use super::task::Guest;

/// One dump at a time ends.
const ENDS: usize = 1;
/// Between two looks at a dump that an earlier request has begun.
const POLL: Duration = Duration::from_secs(1);
/// How long a dump waits for an earlier one, which cannot be cancelled.
const PATIENCE: Duration = Duration::from_hours(2);
/// A part of QEMU's message while it still writes an earlier dump, which libvirtd has forgotten.
const EARLIER_DUMP: &str = "dump in process";

#[derive(Debug)]
pub(super) struct Dumps {
    report: Option<DumpReport>,
    sender: mpsc::Sender<End>,
    ends: mpsc::Receiver<End>,
}

/// How a dump ended; `None` if it was interrupted.
#[derive(Debug)]
pub(super) struct End(Option<DumpStage>);

#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error("domain memory dump failed")]
    Libvirt(#[from] libvirt::Error),
    #[error("an earlier memory dump of the guest does not end")]
    Earlier,
    #[error("write the memory dump to its storage")]
    Storage(#[from] io::Error),
}

impl Dumps {
    /// `last` is the last dump of an earlier launcher of this pod; one that has not ended was interrupted.
    pub(super) fn new(last: Option<DumpReport>) -> Self {
        let (sender, ends) = mpsc::channel(ENDS);
        Self {
            report: last.filter(|report| report.stage != DumpStage::Running),
            sender,
            ends,
        }
    }

    pub(super) async fn next_end(&mut self) -> End {
        match self.ends.recv().await {
            Some(end) => end,
            // `sender` lives as long as this.
            None => std::future::pending().await,
        }
    }

    pub(super) fn report(&self) -> Option<&DumpReport> {
        self.report.as_ref()
    }

    pub(super) fn is_running(&self) -> bool {
        let stage = self.report.as_ref().map(|report| &report.stage);
        stage == Some(&DumpStage::Running)
    }
}

impl Guest {
    /// Starts the dump, unless it was started before.
    pub(super) async fn dump(&mut self, plan: DumpPlan) -> Result<(), Refusal> {
        self.ensure_known().await?;
        let Some(path) = plan.path() else {
            return Err(Refusal::BadDump(plan.file));
        };
        let last = self.dumps.report.as_ref();
        if last.is_some_and(|report| report.plan == plan) {
            return Ok(());
        }
        if self.dumps.is_running() {
            return Err(Refusal::Dumping);
        }
        self.ensure_no_backup().await?;
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
        tracing::info!(path, "memory dump started");
        let is_saving = plan.is_saving();
        let report = DumpReport {
            plan,
            stage: DumpStage::Running,
        };
        if is_saving {
            // Tells a later launcher where the state of a guest is that has ended.
            self.store.set_dump(report.clone())?;
            failpoints::after("virt-launcher/saved/record");
        }
        self.dumps.report = Some(report);
        let ends = self.dumps.sender.clone();
        self.tasks.spawn(async move {
            let done = if is_saving {
                save(&connection, &domain, &path).await
            } else {
                dump(&connection, &domain, &path).await
            };
            let end = End(stage(done));
            if ends.send(end).await.is_err() {
                tracing::info!("a memory dump has ended, and so has the guest's task");
            }
        });
        failpoints::after(if is_saving {
            "virt-launcher/saved/start"
        } else {
            "virt-launcher/dump/start"
        });
        Ok(())
    }

    pub(super) fn on_dump_end(&mut self, End(stage): End) {
        let Some(mut report) = self.dumps.report.take() else {
            return;
        };
        if report.plan.is_saving() && stage == Some(DumpStage::Done) {
            // The end of the guest is what is reported.
            self.dumps.report = Some(report);
            return;
        }
        if let Some(stage) = stage {
            tracing::info!(file = report.plan.file, ?stage, "memory dump ended");
            report.stage = stage;
            // Without the record, a later launcher makes the dump again.
            if let Err(error) = self.store.set_dump(report.clone()) {
                tracing::warn!(%error, "failed to record the memory dump");
            }
            self.dumps.report = Some(report);
        } else {
            tracing::info!(file = report.plan.file, "memory dump interrupted");
        }
        self.publish();
    }
}

fn stage(result: Result<(), DumpError>) -> Option<DumpStage> {
    match result {
        Ok(()) => Some(DumpStage::Done),
        Err(DumpError::Libvirt(error)) if error.is_closed() => None,
        Err(error) => Some(DumpStage::Failed(error_chain(&error))),
    }
}

async fn dump(connection: &Connection, domain: &Domain, path: &str) -> Result<(), DumpError> {
    let written = write(connection, domain, path).await;
    let file = path.to_owned();
    let is_closed = matches!(&written, Err(DumpError::Libvirt(error)) if error.is_closed());
    if is_closed {
        return written;
    }
    let is_written = written.is_ok();
    let settled = tokio::task::spawn_blocking(move || settle(&file, is_written)).await;
    let settled = settled.map_err(io::Error::other)?;
    written.and_then(|()| Ok(settled?))
}

/// Saves the state. What libvirt has written of one that failed is of no use.
async fn save(connection: &Connection, domain: &Domain, path: &str) -> Result<(), DumpError> {
    let saved = connection.save(domain, path).await;
    let is_closed = saved.as_ref().is_err_and(libvirt::Error::is_closed);
    if saved.is_ok() || is_closed {
        return Ok(saved?);
    }
    let file = path.to_owned();
    let settled = tokio::task::spawn_blocking(move || settle(&file, false)).await;
    if let Err(error) = settled.map_err(io::Error::other).flatten() {
        tracing::warn!(%error, "failed to empty the file of a state that was not saved");
    }
    Ok(saved?)
}

/// Has libvirt write the dump, once it has finished an earlier one.
async fn write(connection: &Connection, domain: &Domain, path: &str) -> Result<(), DumpError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let outcome = if connection.has_job(domain).await? {
            None
        } else {
            Some(connection.dump_memory(domain, path).await)
        };
        match outcome {
            Some(Err(error)) if !is_earlier_dump(&error) => return Err(error.into()),
            Some(Ok(())) => return Ok(()),
            Some(Err(_)) | None if Instant::now() >= deadline => return Err(DumpError::Earlier),
            Some(Err(_)) | None => sleep(POLL).await,
        }
    }
}

fn is_earlier_dump(error: &libvirt::Error) -> bool {
    error_chain(error).contains(EARLIER_DUMP)
}

/// Brings a complete dump to disk, and frees the space of one that failed.
fn settle(path: &str, is_written: bool) -> io::Result<()> {
    if is_written {
        return flush(path);
    }
    match File::options().write(true).truncate(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Brings a file to disk.
pub(super) fn flush(path: &str) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    // The name, too, if libvirt has made the file.
    let directory = Path::new(path).parent().map(File::open);
    match directory {
        Some(Ok(directory)) => directory.sync_all(),
        // Where it cannot be opened, virt-handler has made the file.
        Some(Err(_)) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_dump_leaves_no_bytes_and_a_complete_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.memory.dump");
        let name = path.to_str().unwrap();
        settle(name, false).unwrap();
        std::fs::write(&path, "half").unwrap();
        settle(name, true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"half");
        settle(name, false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn interrupted_dump_has_no_result() {
        let closed = DumpError::Libvirt(libvirt::Error::Closed);
        assert_eq!(stage(Err(closed)), None);
        assert_eq!(stage(Ok(())), Some(DumpStage::Done));
        let full = DumpError::Storage(io::Error::from(io::ErrorKind::StorageFull));
        let Some(DumpStage::Failed(message)) = stage(Err(full)) else {
            panic!("not failed");
        };
        assert!(
            message.starts_with("write the memory dump to its storage: "),
            "{message}"
        );
    }
}
