//! The status of a pod, in `status.json` and in replies.
//!
//! The file is replaced atomically at each change, so that a later node or supervisor can continue
//! from it. It is invalid after a reboot, which `boot_id` reveals.

use std::{fs, io, path::Path};

use reasons::Reason;
use serde::{Deserialize, Serialize};

use crate::layout;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    pub supervisor: Process,
    pub boot_id: String,
    /// Inode of the network namespace. If it differs from the one that the node has set up, the pod
    /// needs a new network.
    pub network_namespace: u64,
    pub stopping: bool,
    pub containers: Vec<ContainerStatus>,
}

/// A process ID with the start time, which distinguishes it from a later process with the same ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub pid: i32,
    pub start_ticks: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    /// How often the container was restarted: the restart count of Kubernetes.
    pub attempt: u32,
    /// Failures in a row, which determine the next delay.
    pub strikes: u32,
    pub state: State,
    /// The end of the previous attempt.
    pub last: Option<Termination>,
    /// The first error when output was written to the log, for example a full disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "state",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum State {
    Starting,
    Running {
        process: Process,
        started_ms: i64,
    },
    /// Ended and waiting for a restart.
    BackOff {
        until_ms: i64,
        delay_ms: i64,
        termination: Termination,
    },
    Ended {
        termination: Termination,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Termination {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub reason: EndReason,
    pub started_ms: i64,
    pub finished_ms: i64,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    Completed,
    Error,
    OOMKilled,
    /// The container could not be created.
    StartError,
    /// It ended while no supervisor was running.
    Unknown,
}

impl EndReason {
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => Reason::Completed,
            Self::Error => Reason::Error,
            Self::OOMKilled => Reason::OOMKilled,
            Self::StartError => Reason::StartError,
            Self::Unknown => Reason::ContainerStatusUnknown,
        }
        .as_str()
    }
}

impl ContainerStatus {
    pub fn termination(&self) -> Option<&Termination> {
        match &self.state {
            State::BackOff { termination, .. } | State::Ended { termination } => Some(termination),
            State::Starting | State::Running { .. } => None,
        }
    }
}

impl Process {
    /// The process that has this ID now.
    pub fn of(pid: i32) -> Option<Self> {
        let start_ticks = stat_field(pid, START_TIME)?.parse().ok()?;
        Some(Self { pid, start_ticks })
    }

    /// Whether it is still the same process and not a zombie.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
            && stat_field(self.pid, STATE).is_some_and(|state| state != "Z" && state != "X")
    }
}

/// Indexes of fields after the command name.
const STATE: usize = 0;
const START_TIME: usize = 19;
pub(crate) const EXIT_CODE: usize = 49;

pub(crate) fn stat_field(pid: i32, index: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(index).map(str::to_owned)
}

pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// The last status of the pod in `pod_dir`, if it is from this boot.
pub fn read(pod_dir: &Path) -> io::Result<Option<PodStatus>> {
    let bytes = match fs::read(pod_dir.join(layout::STATUS_FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let status: PodStatus = serde_json::from_slice(&bytes)?;
    Ok((status.boot_id == boot_id()?).then_some(status))
}

pub(crate) fn write(pod_dir: &Path, status: &PodStatus) -> io::Result<()> {
    let bytes = serde_json::to_vec(status)?;
    durable_file::replace(
        &pod_dir.join(layout::STATUS_FILE),
        &bytes,
        durable_file::PRIVATE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_distinguishes_processes() {
        let me = Process::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        assert!(
            !Process {
                start_ticks: me.start_ticks + 1,
                ..me
            }
            .is_alive()
        );
    }

    #[test]
    fn status_of_another_boot_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let mut status = PodStatus {
            supervisor: Process {
                pid: 1,
                start_ticks: 2,
            },
            boot_id: boot_id().unwrap(),
            network_namespace: 3,
            stopping: false,
            containers: vec![],
        };
        write(dir.path(), &status).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(status.clone()));
        status.boot_id = "another".into();
        write(dir.path(), &status).unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
    }
}
