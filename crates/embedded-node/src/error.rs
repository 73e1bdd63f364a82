//! Errors of the node at startup and of the steps of one pod.

use std::{error::Error, io, path::PathBuf};

use error_chain::error_chain;
use reasons::Reason;

/// Why a node cannot start. Each names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("run pods without root privileges: start again as root (sudo)")]
    NotRoot,
    #[error("run pods on this kernel: it has no overlay file system (CONFIG_OVERLAY_FS)")]
    NoOverlay,
    #[error("run pods without cgroups: mount cgroup file systems below /sys/fs/cgroup")]
    NoCgroups,
    #[error("find the pod supervisor at {}: install ferrovirt completely", path.display())]
    NoSupervisor { path: PathBuf },
    #[error("use {} as the node's directory: is the disk full or read-only?", dir.display())]
    Directory {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("reserve CPU {cpu}: this host has {all}")]
    ReservedCpu { cpu: u32, all: String },
    #[error("reserve all CPUs of this host, {all}: leave at least one for pods")]
    AllCpusReserved { all: String },
    #[error(
        "read {}, which says who has CPUs of their own: stop all guests (`ferrovirt down`), then delete it",
        file.display()
    )]
    CpuState {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("register node {name} at the API server")]
    Register {
        name: String,
        #[source]
        source: reconcile::WriteError,
    },
}

/// Why a step of a pod failed, as shown in events and container states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// A reason known from Kubernetes, for example `FailedMount`.
    pub reason: Reason,
    pub message: String,
}

impl Failure {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// A failure of the operation `tried`, with the whole chain of `error`.
    pub fn of(reason: Reason, tried: &str, error: &(dyn Error + 'static)) -> Self {
        Self::new(reason, format!("{tried}: {}", error_chain(error)))
    }
}
