//! Moving the guest to another pod while it runs.
//!
//! The launcher of the pod that the guest leaves directs: it sends requests to its libvirtd and to the
//! launcher of the other pod, over sockets that the handlers connect. Only memory and disks flow
//! between the two QEMUs.
//!
//! **Invariant**: at most one of the two pods runs the guest. At the end of the copy it is paused in
//! both. Then the old launcher records that it gives the guest up, ends its QEMU, and only after
//! that the new one resumes it. Before the record any failure means that the guest goes on in the
//! old pod, after it that it goes on in the new one.

mod incoming;
mod outgoing;
mod peer;

use launcher_channel::{MigrationProgress, MigrationReport, MigrationStage};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use self::incoming::Visit;
use self::outgoing::Copied;
use super::record::MigrationRecord;
use super::task::Guest;

/// Events that wait for the guest's task; a migration sends one a second.
const EVENTS: usize = 16;

/// What the tasks of a migration send to that of the guest.
#[derive(Debug)]
pub(super) enum Event {
    /// The other launcher wants something.
    Visit(Visit),
    Progress(MigrationProgress),
    /// The guest is paused, and all of it has been copied.
    Copied(Box<Copied>),
    /// The guest was not copied. It goes on here.
    Failed(String),
}

/// The migration to or from this pod.
#[derive(Debug)]
pub(super) struct Migrations {
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    report: Option<MigrationReport>,
    /// The task that copies, or that waits for the other launcher.
    task: Option<AbortHandle>,
    cancelled: CancellationToken,
}

impl Migrations {
    pub(super) fn new(record: Option<&MigrationRecord>) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let report = record.map(|record| MigrationReport {
            id: record.id.clone(),
            stage: record.stage(),
            progress: None,
        });
        Self {
            sender,
            events,
            report,
            task: None,
            cancelled: CancellationToken::new(),
        }
    }

    pub(super) async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // `sender` lives as long as this.
            None => std::future::pending().await,
        }
    }

    pub(super) fn report(&self) -> Option<&MigrationReport> {
        self.report.as_ref()
    }

    fn enter(&mut self, id: &str, stage: MigrationStage) {
        let progress = self
            .report
            .take()
            .filter(|report| report.id == id)
            .and_then(|report| report.progress);
        let id = id.to_owned();
        self.report = Some(MigrationReport {
            id,
            stage,
            progress,
        });
    }

    fn is(&self, id: &str) -> bool {
        self.report.as_ref().is_some_and(|report| report.id == id)
    }

    fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Guest {
    pub(super) async fn on_migration(&mut self, event: Event) {
        match event {
            Event::Progress(progress) => {
                if let Some(report) = &mut self.migrations.report {
                    report.progress = Some(progress);
                }
            }
            Event::Copied(copied) => self.hand_over(*copied).await,
            Event::Failed(message) => self.stay(message).await,
            Event::Visit(visit) => self.on_visit(visit).await,
        }
        self.publish();
    }
}
