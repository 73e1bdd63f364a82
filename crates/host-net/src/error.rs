//! Errors of network configuration.

use std::io;

use reasons::Reason;
use rustix::io::Errno;

/// Each names the operation that failed; `reason` and `is_transient` are for reconcilers.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error(
        "{operation}: not permitted; this needs root or CAP_NET_ADMIN in the namespace's owner"
    )]
    NotPermitted { operation: String },
    #[error("{operation}: this kernel has no {feature}; load or build in that module")]
    NotSupported { operation: String, feature: String },
    #[error("{name} is a {found}, not a {wanted}: another program made it; choose another name")]
    Foreign {
        name: String,
        found: String,
        wanted: &'static str,
    },
    #[error("there is no link {name}")]
    NoSuchLink { name: String },
    #[error("{name:?} is not a valid {what}")]
    BadName { name: String, what: &'static str },
    #[error("{operation}: {}", describe(*.errno, .message))]
    Kernel {
        operation: String,
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
    #[error("create tap device {name}")]
    Tap {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("communicate with the kernel over netlink")]
    Socket(#[source] io::Error),
    #[error("the kernel's netlink response is {problem}")]
    Response { problem: &'static str },
    #[error("the thread in the network namespace panicked")]
    ThreadPanicked,
}

/// The kernel's extended message, if it sent one, with the text of the error number.
fn describe(errno: Errno, message: &str) -> String {
    let errno = io::Error::from(errno);
    if message.is_empty() {
        errno.to_string()
    } else {
        format!("{message} ({errno})")
    }
}

impl NetError {
    /// A stable CamelCase reason for conditions, events and metrics.
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
            Self::Socket(_) | Self::Response { .. } | Self::ThreadPanicked => Reason::NetlinkFailed,
        }
    }

    /// Whether the same operation may succeed later without a change to the host or its settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NotPermitted { .. }
            | Self::NotSupported { .. }
            | Self::Foreign { .. }
            | Self::BadName { .. } => false,
            Self::NoSuchLink { .. }
            | Self::Kernel { .. }
            | Self::Namespace { .. }
            | Self::Sysctl { .. }
            | Self::Tap { .. }
            | Self::Socket(_)
            | Self::Response { .. }
            | Self::ThreadPanicked => true,
        }
    }
}
