//! Moving the guest to another pod while it runs.
//!
//! The launcher of the pod that the guest leaves directs: it sends requests to its libvirtd and to the
//! launcher of the other pod, over sockets that the handlers connect. Only memory and disks flow
//! between the two QEMUs.
//!
//! **Invariant**: at most one of the two pods runs the guest. At the end of the copy it is paused in
//! both. Then the old launcher records that it gives the guest up, ends its QEMU, and only after
//! that the new one resumes it. Before the record any failure means that the guest goes on in the
//! old pod, after it that it goes on in the new one. `post_copy` has the other order, in which the guest runs
//! before all of its memory is there, and `late_listener` serves the launcher of the old pod after a restart.
//!
//! What the new pod changes in the guest's XML: the places of disks (`moved_disks`), the CPUs (`own_cpus`), and the name and
//! paths of a guest of another VMI (`adopted`). `pod_images` gives the images that each pod makes the same length.

mod adopted;
mod copying;
mod disk_xml;
mod follow;
mod incoming;
mod late_listener;
mod moved_disks;
mod outgoing;
mod own_cpus;
mod peer;
mod pod_images;
mod post_copy;
mod refresh;

use launcher_channel::{MigrationProgress, MigrationReport, MigrationStage, StopReason};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

pub(super) use self::adopted::AdoptError;
use self::copying::Copied;
use self::follow::FollowEnd;
use self::incoming::Visit;
pub(super) use self::moved_disks::MovedDiskError;
pub(super) use self::own_cpus::OwnCpusError;
pub(super) use self::post_copy::{Memory, seen};
use super::record::{MigrationRecord, MigrationStep};
use super::status::Phase;
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
    /// The other pod is prepared such that the copy can be switched to post-copy, or the guest may be paused.
    CanSwitch,
    /// The guest was paused so that the copy ends.
    Paused,
    /// This pod has stopped to wait for the memory that follows.
    Followed(FollowEnd),
    /// These links were down long enough for the guest to see it.
    RaiseLinks(Vec<String>),
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
    /// Cancelled when the copy is to be switched to post-copy.
    switch: CancellationToken,
    /// What has arrived is kept if the connection to the other launcher ends.
    holds: bool,
    /// The task that waits for the memory that follows.
    follow: Option<AbortHandle>,
    /// Serves the other launcher in place of an earlier launcher of this pod.
    listener: Option<AbortHandle>,
    memory: Memory,
    /// Links that are down for a moment, and are reported as up: the handler would raise them too early.
    raising: Vec<String>,
}

impl Migrations {
    /// The migration that an earlier launcher of this pod has recorded.
    pub(super) fn new(record: Option<&MigrationRecord>, phase: Option<Phase>) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let report = record.and_then(|record| {
            Some(MigrationReport {
                id: record.id.clone(),
                stage: stage(record.step, phase?)?,
                progress: None,
                can_switch: false,
                needs_no_switch: false,
                paused: false,
            })
        });
        Self {
            sender,
            events,
            report,
            task: None,
            cancelled: CancellationToken::new(),
            switch: CancellationToken::new(),
            holds: false,
            follow: None,
            listener: None,
            memory: Memory::Follows,
            raising: Vec::new(),
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

    /// Whether the memory of a guest in post-copy still can arrive.
    pub(super) fn memory(&self) -> Memory {
        self.memory
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
            can_switch: false,
            needs_no_switch: false,
            paused: false,
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

/// The stage that a restarted launcher reports. `None` if the handler has to begin anew, because this
/// launcher does not wait for a guest yet.
fn stage(step: MigrationStep, phase: Phase) -> Option<MigrationStage> {
    let failed = |message: &str| Some(MigrationStage::Failed(message.to_owned()));
    match (step, phase) {
        (MigrationStep::Copying, _) => Some(MigrationStage::Copying),
        (MigrationStep::GivenUp | MigrationStep::Arrived, _)
        | (MigrationStep::Incoming, Phase::Resuming | Phase::Started)
        | (MigrationStep::Switched, Phase::Ended(StopReason::Migrated)) => {
            Some(MigrationStage::Done)
        }
        (MigrationStep::Incoming, Phase::Received) => Some(MigrationStage::Received),
        (MigrationStep::Incoming, Phase::Planned | Phase::Starting) => None,
        (MigrationStep::Incoming, Phase::Receiving) => {
            failed("the launcher of the new pod was restarted during the copy")
        }
        (MigrationStep::Incoming | MigrationStep::Following, Phase::Ended(_)) => {
            failed("the guest has ended in the new pod")
        }
        (MigrationStep::Switched, Phase::Ended(_)) => {
            failed("QEMU has ended in the old pod before all of the memory was copied")
        }
        (MigrationStep::Following, Phase::Planned | Phase::Starting | Phase::Receiving) => {
            failed("the launcher of the new pod was restarted before the guest ran there")
        }
        (MigrationStep::Switched | MigrationStep::Following, _) => Some(MigrationStage::PostCopy),
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
            Event::CanSwitch => {
                if let Some(report) = &mut self.migrations.report {
                    report.can_switch = true;
                }
            }
            Event::Paused => {
                if let Some(report) = &mut self.migrations.report {
                    report.paused = true;
                }
            }
            Event::Followed(end) => self.on_follow_end(end).await,
            Event::Visit(visit) => self.on_visit(visit).await,
            Event::RaiseLinks(names) => Box::pin(self.raise_links(&names)).await,
        }
        self.publish();
    }

    /// The report as the handler gets it.
    pub(super) fn migration_report(&self) -> Option<MigrationReport> {
        let report = self.migrations.report()?.clone();
        let stays_paused = self.store.migration().is_some_and(|one| one.stays_paused);
        let needs_no_switch = stays_paused || self.migrations.switch.is_cancelled();
        Some(MigrationReport {
            needs_no_switch,
            paused: report.paused && !stays_paused && report.stage == MigrationStage::Copying,
            ..report
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarted_launcher_reports_the_stage_that_it_recorded() {
        use MigrationStage as Stage;
        use MigrationStep::{Arrived, Copying, Following, GivenUp, Incoming, Switched};
        let failed = |message: &str| Some(Stage::Failed(message.to_owned()));
        let lost = "the launcher of the new pod was restarted during the copy";
        let ended = Phase::Ended(StopReason::Crashed);
        let table = [
            (Incoming, Phase::Planned, None),
            (
                Incoming,
                Phase::Receiving,
                Some(Stage::Failed(lost.to_owned())),
            ),
            (Incoming, Phase::Received, Some(Stage::Received)),
            (Incoming, Phase::Resuming, Some(Stage::Done)),
            (Incoming, Phase::Started, Some(Stage::Done)),
            (
                Incoming,
                ended,
                Some(Stage::Failed(
                    "the guest has ended in the new pod".to_owned(),
                )),
            ),
            (Arrived, Phase::Resuming, Some(Stage::Done)),
            (Arrived, ended, Some(Stage::Done)),
            (Copying, Phase::Started, Some(Stage::Copying)),
            (GivenUp, Phase::Started, Some(Stage::Done)),
            (
                GivenUp,
                Phase::Ended(StopReason::Migrated),
                Some(Stage::Done),
            ),
            (Switched, Phase::Started, Some(Stage::PostCopy)),
            (
                Switched,
                Phase::Ended(StopReason::Migrated),
                Some(Stage::Done),
            ),
            (
                Switched,
                ended,
                failed("QEMU has ended in the old pod before all of the memory was copied"),
            ),
            (Following, Phase::Started, Some(Stage::PostCopy)),
            (
                Following,
                Phase::Receiving,
                failed("the launcher of the new pod was restarted before the guest ran there"),
            ),
            (
                Following,
                ended,
                failed("the guest has ended in the new pod"),
            ),
        ];
        for (step, phase, expected) in table {
            let record = MigrationRecord {
                id: "m".to_owned(),
                step,
                stays_paused: false,
            };
            let migrations = Migrations::new(Some(&record), Some(phase));
            let found = migrations.report().map(|report| report.stage.clone());
            assert_eq!(found, expected, "{step:?} {phase:?}");
        }
    }
}
