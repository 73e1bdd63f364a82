//! The exits of orphaned processes, which only process 1 learns: QEMU is one of them.

use std::io;
use std::path::Path;

use rustix::process::{Pid, WaitStatus};
use serde::{Deserialize, Serialize};

use crate::file;

/// Recorded exits. libvirt's probes of QEMU end before the guest's QEMU starts.
const MAX_KEPT: usize = 16;

/// The exit of one process.
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

/// Adds an exit to the list at `path` and drops the oldest ones.
pub(super) fn record(path: &Path, end: End) {
    let mut ends = read(path);
    ends.push(end);
    let surplus = ends.len().saturating_sub(MAX_KEPT);
    ends.drain(..surplus);
    if let Err(error) = write(path, &ends) {
        tracing::warn!(%error, "failed to record the exit of a process");
    }
}

/// The list; empty if there is none or it is malformed.
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
    fn newest_exits_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("launcher/ends.json");
        for pid in 1..=20 {
            record(
                &path,
                End {
                    pid,
                    signal: None,
                    code: Some(0),
                },
            );
        }
        let ends = read(&path);
        assert_eq!(ends.len(), MAX_KEPT);
        assert_eq!(ends.last().unwrap().pid, 20);
    }
}
