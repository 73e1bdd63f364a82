//! Why an instance type or a preference cannot be applied.

use ::instancetype::reference::Family;
use cluster_view::sizes::FindError;
use reasons::Reason;
use reconcile::{Retry, WriteError};
use validation::Violation;

/// Why a choice cannot be applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChoiceError {
    #[error("find the {}", family.path())]
    Find {
        family: Family,
        #[source]
        source: FindError,
    },
    #[error("store a revision of the instance type or preference")]
    Keep(#[source] WriteError),
    #[error("read revision {name}")]
    Read {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// Tools compare the first part of the message.
    #[error(
        "found existing ControllerRevision with unexpected data: {name}; delete it to store the current \
         instance type or preference"
    )]
    OtherRevision { name: String },
    #[error("apply the instance type or preference: {0}")]
    Refused(String),
}

impl ChoiceError {
    /// For events, conditions and metrics.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Read { .. } => Reason::ServerUnavailable,
            Self::Find { source, .. } if source.is_transient() => Reason::ServerUnavailable,
            Self::Find { family, .. } => match family {
                Family::Instancetype => Reason::FailedFindInstancetype,
                Family::Preference => Reason::FailedFindPreference,
            },
            Self::Keep(_) | Self::OtherRevision { .. } | Self::Refused(_) => Reason::FailedCreate,
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Keep(source) => source.retry(),
            Self::Find { .. }
            | Self::Read { .. }
            | Self::OtherRevision { .. }
            | Self::Refused(_) => Retry::BackOff,
        }
    }

    pub(super) fn refused(found: &[Violation]) -> Self {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        Self::Refused(all.join("; "))
    }
}
