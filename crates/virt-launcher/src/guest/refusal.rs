//! Why a request was refused.

use std::io;

use error_chain::error_chain;
use launcher_channel::{MAX_PARALLEL_CONNECTIONS, Reply};
use reasons::Reason;

use super::file_servers::FileServerError;
use super::metrics_server::MetricsError;
use super::migration::{AdoptError, MovedDiskError, OwnCpusError};
use super::passt_servers::PasstError;
use super::saved_state::SavedStateError;
use crate::hooks::HookError;
use crate::prepare::PrepareError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("this pod was created for the VMI with UID {ours}, the plan is for {requested}")]
    WrongGuest { requested: String, ours: String },
    #[error("the plan's domain UUID {0:?} is not a UUID")]
    BadUuid(String),
    #[error("the guest is not running")]
    NotRunning,
    #[error("the guest agent is not connected")]
    NoAgent,
    #[error("the guest agent queue is full")]
    AgentBusy,
    #[error("the launcher cannot be released: the guest is still running")]
    StillRunning,
    #[error("the guest cannot be started: the pod is terminating")]
    Terminating,
    #[error("another migration of the guest is in progress")]
    Migrating,
    #[error("this pod waits for the guest of another pod")]
    Receiving,
    #[error("the guest is being handed over to another pod")]
    HandedOver,
    #[error("a memory dump of the guest is in progress")]
    Dumping,
    #[error("{0:?} is not the name of a memory dump")]
    BadDump(String),
    #[error("a backup of the guest is in progress, or is being ended")]
    BackingUp,
    #[error("{0:?} is not the directory of a backup")]
    BadBackup(String),
    #[error("more than {MAX_PARALLEL_CONNECTIONS} connections were asked for")]
    TooManyConnections,
    #[error("no guest of that migration is here")]
    NotReceived,
    #[error("the disks of the guest cannot be copied to this pod")]
    MovedDisk(#[from] MovedDiskError),
    #[error("the guest cannot have the CPUs of this pod")]
    OwnCpus(#[from] OwnCpusError),
    #[error("the guest of the other VMI cannot go on in this pod")]
    Adopt(#[from] AdoptError),
    #[error("failed to prepare the guest's files")]
    Prepare(#[source] PrepareError),
    #[error("the hook sidecars have not agreed to the guest")]
    Hook(#[from] HookError),
    #[error("failed to share a directory with the guest")]
    Filesystem(#[from] FileServerError),
    #[error("failed to connect the guest to the pod's network")]
    Passt(#[from] PasstError),
    #[error("failed to offer metrics of the node")]
    Metrics(#[from] MetricsError),
    #[error("failed to keep other threads off the guest's CPUs")]
    Separate(#[source] io::Error),
    #[error("failed to define the guest")]
    Define(#[source] libvirt::Error),
    #[error("failed to start the guest (attempt {attempt} of {of})")]
    Start {
        attempt: u32,
        of: u32,
        #[source]
        source: libvirt::Error,
    },
    #[error("the guest cannot go on from its saved state")]
    SavedState(#[from] SavedStateError),
    #[error("the guest cannot go on from its saved state: libvirt or QEMU refuses it")]
    Restore(#[source] libvirt::Error),
    #[error("libvirt or QEMU refuses to plug processors or memory into the guest")]
    Resize(#[source] libvirt::Error),
    #[error("libvirt call failed")]
    Libvirt(#[from] libvirt::Error),
    #[error("failed to record the guest's state")]
    Record(#[from] io::Error),
}

impl Refusal {
    fn reason(&self) -> Reason {
        match self {
            Self::WrongGuest { .. } => Reason::WrongGuest,
            Self::BadUuid(_)
            | Self::BadDump(_)
            | Self::BadBackup(_)
            | Self::TooManyConnections
            | Self::Adopt(_) => Reason::InvalidPlan,
            Self::NotRunning => Reason::NotRunning,
            Self::NoAgent => Reason::AgentNotConnected,
            Self::AgentBusy => Reason::AgentBusy,
            Self::StillRunning => Reason::StillRunning,
            Self::Migrating | Self::Receiving | Self::HandedOver | Self::NotReceived => {
                Reason::MigrationConflict
            }
            Self::Dumping => Reason::MemoryDumpInProgress,
            Self::BackingUp => Reason::BackupInProgress,
            Self::Terminating => Reason::Ending,
            Self::MovedDisk(_) => Reason::DiskNotUsable,
            Self::Prepare(error) => error.reason(),
            Self::Hook(error) => error.reason(),
            Self::Filesystem(_) => Reason::FilesystemNotServed,
            Self::Passt(_) => Reason::PasstNotStarted,
            Self::Separate(_) | Self::Metrics(_) | Self::OwnCpus(_) => Reason::PrepareFailed,
            Self::Define(_) => Reason::DomainInvalid,
            Self::Start { .. } => Reason::StartFailed,
            Self::SavedState(_) | Self::Restore(_) => Reason::ResumeFailed,
            Self::Resize(_) => Reason::GuestResizeFailed,
            Self::Libvirt(error) => error.reason(),
            Self::Record(_) => Reason::LauncherStorage,
        }
    }

    /// Whether the same request may succeed later.
    fn is_transient(&self) -> bool {
        match self {
            Self::WrongGuest { .. }
            | Self::BadUuid(_)
            | Self::NotRunning
            | Self::NoAgent
            | Self::NotReceived
            | Self::TooManyConnections
            | Self::BadDump(_)
            | Self::BadBackup(_)
            | Self::SavedState(_)
            | Self::Restore(_)
            | Self::MovedDisk(_)
            | Self::OwnCpus(_)
            | Self::Adopt(_)
            | Self::Terminating => false,
            Self::Prepare(error) => error.is_transient(),
            Self::Start { attempt, of, .. } => attempt < of,
            Self::AgentBusy
            | Self::Dumping
            | Self::BackingUp
            | Self::Migrating
            // Until the other pod has given the guest up.
            | Self::Receiving
            // The new node of the guest answers soon.
            | Self::HandedOver
            | Self::StillRunning
            | Self::Hook(_)
            | Self::Filesystem(_)
            | Self::Passt(_)
            | Self::Separate(_)
            | Self::Metrics(_)
            | Self::Define(_)
            | Self::Libvirt(_)
            | Self::Resize(_)
            | Self::Record(_) => true,
        }
    }

    /// Whether the connection to libvirtd was lost during the request.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Libvirt(error) | Self::Define(error) | Self::Resize(error) => error.is_closed(),
            _ => false,
        }
    }

    pub(crate) fn into_reply(self) -> Reply {
        Reply::Refused {
            reason: self.reason().into(),
            message: sentence(&error_chain(&self)),
            retry: self.is_transient(),
        }
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_carry_a_sentence() {
        let refusal = Refusal::Libvirt(libvirt::Error::Closed);
        let Reply::Refused { message, retry, .. } = refusal.into_reply() else {
            panic!("not a refusal")
        };
        assert_eq!(
            message,
            "Libvirt call failed: connection to libvirt has ended."
        );
        assert!(retry);
    }
}
