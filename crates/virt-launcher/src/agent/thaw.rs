//! When file systems that are held still are let go.
//!
//! **Invariants**: the time outlives connections to libvirtd and the launcher itself: it is noted
//! in a file of the pod before the guest is held still, so that no death leaves a guest still for
//! good. A note that cannot be read lets go at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::file;

#[derive(Debug, Clone)]
pub(crate) struct Thaw {
    at: Arc<watch::Sender<Option<Instant>>>,
    note: PathBuf,
}

impl Thaw {
    /// With what an earlier launcher of this pod has noted.
    pub(crate) fn open(note: PathBuf) -> Self {
        let left = match read(&note) {
            Ok(left) => left,
            Err(err) => {
                tracing::warn!(%err, "when the guest is to be thawed cannot be read: now");
                Some(Duration::ZERO)
            }
        };
        let at = left.and_then(|left| Instant::now().checked_add(left));
        Self {
            at: Arc::new(watch::Sender::new(at)),
            note,
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        *self.at.borrow()
    }

    /// Lets go after that time.
    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        let at = since_boot().saturating_add(after);
        // What was to happen here must happen even if nobody after us learns of it.
        self.at.send_replace(Instant::now().checked_add(after));
        file::replace(&self.note, at.as_secs().to_string().as_bytes())?;
        failpoints::after("virt-launcher/agent/note-thaw");
        Ok(())
    }

    /// It is due and could not be done. For whoever comes after us it stays due.
    pub(super) fn put_off(&self, time: Duration) {
        self.at.send_replace(Instant::now().checked_add(time));
    }

    /// Nothing is held still, or for as long as whoever asked wants.
    pub(super) fn forget(&self) {
        self.at.send_replace(None);
        match std::fs::remove_file(&self.note) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                // At worst a guest that moves is told to.
                tracing::warn!(%err, "note of a thaw stays");
            }
            _ => failpoints::after("virt-launcher/agent/forget-thaw"),
        }
    }
}

/// How long from now, if there is a note.
fn read(note: &Path) -> io::Result<Option<Duration>> {
    let text = match std::fs::read_to_string(note) {
        Ok(text) => text,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err),
    };
    let seconds = text.parse().map_err(io::Error::other)?;
    Ok(Some(
        Duration::from_secs(seconds).saturating_sub(since_boot()),
    ))
}

/// The one clock that runs on through a launcher's death and that nobody sets; no guest outlives it.
fn since_boot() -> Duration {
    clock_gettime(ClockId::Boottime)
        .try_into()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_launcher_that_comes_after_lets_go_when_the_one_before_would_have() {
        let dir = tempfile::tempdir().unwrap();
        let path = || dir.path().join("launcher/thaw");
        let left = |thaw: &Thaw| thaw.due().map(|at| at.duration_since(Instant::now()));
        assert_eq!(Thaw::open(path()).due(), None);
        let hour = Duration::from_hours(1);
        Thaw::open(path()).set(hour).unwrap();
        let after = left(&Thaw::open(path())).unwrap();
        assert!(hour / 2 < after && after <= hour, "{after:?}");
        Thaw::open(path()).forget();
        assert_eq!(Thaw::open(path()).due(), None);
        // Its time was over while nobody was there, or nobody can tell.
        for note in ["0", "soon"] {
            std::fs::write(path(), note).unwrap();
            assert_eq!(left(&Thaw::open(path())), Some(Duration::ZERO), "{note}");
        }
    }
}
