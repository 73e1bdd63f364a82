//! Why a request was refused.

use std::io;

use launcher_channel::Reply;
use reasons::Reason;

use crate::file;
use crate::prepare::PrepareError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("take the plan: it is for the VMI with UID {asked}, and this pod was made for {ours}")]
    WrongGuest { asked: String, ours: String },
    #[error("take the plan: its domain UUID {0:?} is not a UUID")]
    BadUuid(String),
    #[error("do this: the guest does not run")]
    NotRunning,
    #[error("ask the guest agent: none is connected")]
    NoAgent,
    #[error("ask the guest agent: it has more questions than it answers")]
    AgentBusy,
    #[error("let the launcher go: its guest still runs")]
    StillRunning,
    #[error("start the guest: the pod is being ended")]
    Ending,
    #[error("prepare the guest's files")]
    Prepare(#[source] PrepareError),
    #[error("define the guest")]
    Define(#[source] libvirt::Error),
    #[error("start the guest, attempt {attempt} of {of}")]
    Start {
        attempt: u32,
        of: u32,
        #[source]
        source: libvirt::Error,
    },
    #[error("have libvirt do this")]
    Libvirt(#[from] libvirt::Error),
    #[error("remember the state of the guest")]
    Memory(#[from] io::Error),
}

impl Refusal {
    fn reason(&self) -> Reason {
        match self {
            Self::WrongGuest { .. } => Reason::WrongGuest,
            Self::BadUuid(_) => Reason::InvalidPlan,
            Self::NotRunning => Reason::NotRunning,
            Self::NoAgent => Reason::AgentNotConnected,
            Self::AgentBusy => Reason::AgentBusy,
            Self::StillRunning => Reason::StillRunning,
            Self::Ending => Reason::Ending,
            Self::Prepare(err) => err.reason(),
            Self::Define(_) => Reason::DomainInvalid,
            Self::Start { .. } => Reason::StartFailed,
            Self::Libvirt(err) => err.reason(),
            Self::Memory(_) => Reason::LauncherStorage,
        }
    }

    /// Whether the same request may succeed later.
    fn may_pass(&self) -> bool {
        match self {
            Self::WrongGuest { .. }
            | Self::BadUuid(_)
            | Self::NotRunning
            | Self::NoAgent
            | Self::Ending
            | Self::Define(libvirt::Error::Remote(_)) => false,
            Self::Prepare(err) => err.may_pass(),
            Self::Start { attempt, of, .. } => attempt < of,
            Self::AgentBusy
            | Self::StillRunning
            | Self::Define(_)
            | Self::Libvirt(_)
            | Self::Memory(_) => true,
        }
    }

    pub(crate) fn into_reply(self) -> Reply {
        Reply::Refused {
            reason: self.reason().into(),
            message: format!("Could not {}.", file::chain(&self)),
            retry: self.may_pass(),
        }
    }
}
