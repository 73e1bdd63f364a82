//! Jobs of increments that an earlier launcher of this pod, or an attempt that was interrupted, has left in QEMU.
//!
//! **Invariant**: until it is known that there is none, the guest does not migrate, is not dumped, and loses no disk:
//! libvirt does not know these jobs and would not refuse that.

use std::sync::Arc;
use std::time::Duration;

use error_chain::error_chain;

use super::backup_run::Note;
use super::block_jobs::Qemu;
use super::refusal::Refusal;
use super::task::Guest;

/// A QEMU that hangs must not hold up other requests for long.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// What is known about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftovers {
    None,
    Unknown,
    /// A task ends them.
    Ending,
}

impl Guest {
    /// Has leftovers ended, if there may be any. A failed attempt is repeated by the next request that needs to know.
    pub(super) async fn end_leftovers(&mut self) {
        if self.backups.is_running() || self.backups.leftovers != Leftovers::Unknown {
            return;
        }
        let (true, Some(connection), Some(domain)) =
            (self.is_alive(), self.connection(), self.domain())
        else {
            return;
        };
        let qemu = Qemu {
            connection: connection.with_limit(LOOK_LIMIT),
            domain: domain.clone(),
        };
        match qemu.jobs().await {
            Ok(jobs) if jobs.is_empty() => self.backups.leftovers = Leftovers::None,
            Ok(jobs) => {
                tracing::info!(jobs = jobs.len(), "ending what a backup has left in QEMU");
                self.backups.leftovers = Leftovers::Ending;
                let sender = self.backups.sender();
                let qemu = Qemu { connection, domain };
                let turn = Arc::clone(&self.backups.turn);
                self.tasks.spawn(async move {
                    let _turn = turn.lock().await;
                    let note = Note::Cleared(qemu.end_jobs().await);
                    if sender.send(note).await.is_err() {
                        tracing::info!("leftovers of a backup ended, and so has the guest's task");
                    }
                });
            }
            Err(error) => tracing::warn!(
                error = error_chain(&error),
                "failed to look for what a backup has left in QEMU"
            ),
        }
    }

    /// Refuses what must not be done while disks are copied.
    pub(super) async fn ensure_no_backup(&mut self) -> Result<(), Refusal> {
        self.end_leftovers().await;
        if self.backups.is_busy() {
            return Err(Refusal::BackingUp);
        }
        Ok(())
    }
}
