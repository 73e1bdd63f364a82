//! How processes ended that were left to process 1: QEMU is one of them, and nobody else can know.

use std::io;
use std::path::Path;

use rustix::process::{Pid, WaitStatus};
use serde::{Deserialize, Serialize};

use crate::file;

/// libvirt's probes end before the guest's QEMU starts; more than a few are of no interest.
const KEPT: usize = 16;

/// The end of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) pid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<i32>,
}

impl End {
    pub(super) fn of(pid: Pid, status: WaitStatus) -> Self {
        Self {
            pid: pid.as_raw_nonzero().get(),
            signal: status.terminating_signal(),
            code: status.exit_status(),
        }
    }
}

/// Adds an end to the list at `path`, which forgets the oldest.
pub(super) fn note(path: &Path, end: End) {
    let mut ends = read(path);
    ends.push(end);
    let surplus = ends.len().saturating_sub(KEPT);
    ends.drain(..surplus);
    if let Err(err) = write(path, &ends) {
        tracing::warn!(%err, "the end of a process is not written down");
    }
}

/// The list; empty if there is none or it was cut off.
pub(crate) fn read(path: &Path) -> Vec<End> {
    let bytes = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

pub(crate) fn write(path: &Path, ends: &[End]) -> io::Result<()> {
    file::replace(path, &serde_json::to_vec(ends)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ends_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("launcher/ends.json");
        for pid in 1..=20 {
            note(
                &path,
                End {
                    pid,
                    signal: None,
                    code: Some(0),
                },
            );
        }
        let ends = read(&path);
        assert_eq!(ends.len(), KEPT);
        assert_eq!(ends.last().unwrap().pid, 20);
    }
}
