//! Why the host's network could not be made as wanted.

use std::io;

use reasons::Reason;
use rustix::io::Errno;

/// Each says what was being done; `reason` and `retry` are for reconcilers.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error("{doing}: not permitted; this needs root or CAP_NET_ADMIN in the namespace's owner")]
    NotPermitted { doing: String },
    #[error("{doing}: this kernel has no {feature}; load or build in that module")]
    NotSupported { doing: String, feature: String },
    #[error("{name} is a {found}, not a {wanted}: another program made it; choose another name")]
    Foreign {
        name: String,
        found: String,
        wanted: &'static str,
    },
    #[error("there is no link {name}")]
    NoSuchLink { name: String },
    #[error("{name:?} is no name for {what}")]
    BadName { name: String, what: &'static str },
    #[error("{doing}: {}", said(*.errno, .message))]
    Kernel {
        doing: String,
        errno: Errno,
        message: String,
    },
    #[error("open the network namespace {namespace}")]
    Namespace {
        namespace: String,
        #[source]
        source: io::Error,
    },
    #[error("set {name} to {value:?}")]
    Sysctl {
        name: String,
        value: String,
        #[source]
        source: io::Error,
    },
    #[error("make tap device {name}")]
    Tap {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("talk to the kernel over netlink")]
    Socket(#[source] io::Error),
    #[error("the kernel's netlink answer is {problem}")]
    Answer { problem: &'static str },
    #[error("the thread in the network namespace died")]
    ThreadDied,
}

/// The kernel's own sentence, where it gives one, is more than the number.
fn said(errno: Errno, message: &str) -> String {
    let errno = io::Error::from(errno);
    if message.is_empty() {
        errno.to_string()
    } else {
        format!("{message} ({errno})")
    }
}

/// Whether the same work may succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Never,
    Soon,
}

impl NetError {
    /// A stable word for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotPermitted { .. } => Reason::NetworkNotPermitted,
            Self::NotSupported { .. } => Reason::KernelFeatureMissing,
            Self::Foreign { .. } => Reason::ForeignLink,
            Self::NoSuchLink { .. } => Reason::NoSuchLink,
            Self::BadName { .. } => Reason::BadLinkName,
            Self::Kernel { .. } => Reason::NetworkRefused,
            Self::Namespace { .. } => Reason::NoSuchNamespace,
            Self::Sysctl { .. } => Reason::SysctlFailed,
            Self::Tap { .. } => Reason::TapFailed,
            Self::Socket(_) | Self::Answer { .. } | Self::ThreadDied => Reason::NetlinkFailed,
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::NotPermitted { .. }
            | Self::NotSupported { .. }
            | Self::Foreign { .. }
            | Self::BadName { .. } => Retry::Never,
            Self::NoSuchLink { .. }
            | Self::Kernel { .. }
            | Self::Namespace { .. }
            | Self::Sysctl { .. }
            | Self::Tap { .. }
            | Self::Socket(_)
            | Self::Answer { .. }
            | Self::ThreadDied => Retry::Soon,
        }
    }
}
