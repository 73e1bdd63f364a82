//! When frozen file systems are thawed.
//!
//! **Invariants**: the deadline outlives connections to libvirtd and the launcher itself: it is
//! recorded in a file of the pod before the freeze, so that no crash leaves a guest frozen. A
//! record that cannot be read means a thaw at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::file;

/// The deadline of the thaw, shared by all clones.
#[derive(Debug, Clone)]
pub(crate) struct ThawTimer {
    deadline: Arc<watch::Sender<Option<Instant>>>,
    record: PathBuf,
}

impl ThawTimer {
    /// Opens the timer with the deadline that an earlier launcher of this pod recorded.
    pub(crate) fn open(record: PathBuf) -> Self {
        let left = match read(&record) {
            Ok(left) => left,
            Err(error) => {
                tracing::warn!(%error, "failed to read the thaw deadline: thawing now");
                Some(Duration::ZERO)
            }
        };
        let deadline = left.and_then(|left| Instant::now().checked_add(left));
        Self {
            deadline: Arc::new(watch::Sender::new(deadline)),
            record,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        *self.deadline.borrow()
    }

    /// Schedules the thaw and records its deadline. The timer runs even if the record fails.
    pub(super) fn schedule(&self, after: Duration) -> io::Result<()> {
        let at = since_boot().saturating_add(after);
        self.deadline
            .send_replace(Instant::now().checked_add(after));
        file::replace(&self.record, at.as_secs().to_string().as_bytes())?;
        failpoints::after("virt-launcher/agent/schedule-thaw");
        Ok(())
    }

    /// Postpones a thaw that has failed. The recorded deadline stays in the past, so that a later
    /// launcher thaws at once.
    pub(super) fn postpone(&self, by: Duration) {
        self.deadline.send_replace(Instant::now().checked_add(by));
    }

    /// Cancels the thaw: nothing is frozen, or the freeze has no time limit.
    pub(super) fn cancel(&self) {
        self.deadline.send_replace(None);
        match std::fs::remove_file(&self.record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // At worst a later launcher thaws a guest that is not frozen.
                tracing::warn!(%error, "failed to remove the thaw deadline");
            }
            _ => failpoints::after("virt-launcher/agent/cancel-thaw"),
        }
    }
}

/// The time left until the recorded deadline, if there is one.
fn read(record: &Path) -> io::Result<Option<Duration>> {
    let text = match std::fs::read_to_string(record) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let seconds = text.parse().map_err(io::Error::other)?;
    Ok(Some(
        Duration::from_secs(seconds).saturating_sub(since_boot()),
    ))
}

/// A clock that runs across restarts of the launcher and that cannot be set. No guest outlives a
/// boot of the node.
fn since_boot() -> Duration {
    clock_gettime(ClockId::Boottime)
        .try_into()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn deadline_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = || dir.path().join("launcher/thaw");
        let left = |thaw: &ThawTimer| thaw.deadline().map(|at| at.duration_since(Instant::now()));
        assert_eq!(ThawTimer::open(path()).deadline(), None);
        let hour = Duration::from_hours(1);
        ThawTimer::open(path()).schedule(hour).unwrap();
        let after = left(&ThawTimer::open(path())).unwrap();
        assert!(hour / 2 < after && after <= hour, "{after:?}");
        ThawTimer::open(path()).cancel();
        assert_eq!(ThawTimer::open(path()).deadline(), None);
        // A deadline that has passed, and one that cannot be read.
        for record in ["0", "soon"] {
            std::fs::write(path(), record).unwrap();
            let timer = ThawTimer::open(path());
            assert_eq!(left(&timer), Some(Duration::ZERO), "{record}");
        }
    }
}
