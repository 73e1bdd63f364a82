//! Why a VMI cannot have a pod.

use reasons::Reason;

/// Each names the field, so that the user knows what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    #[error("{field}: not supported yet")]
    Unsupported { field: String },
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    #[error("{field}: needs a value")]
    Missing { field: String },
    #[error("{field}: the claim {claim} is not known")]
    UnknownClaim { field: String, claim: String },
    #[error("{field}: the cluster does not permit the device {device}")]
    ForbiddenDevice { field: String, device: String },
}

impl PodError {
    /// A stable word for conditions and events.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unsupported { .. } => Reason::UnsupportedField,
            Self::Invalid { .. } => Reason::InvalidField,
            Self::Missing { .. } => Reason::MissingField,
            Self::UnknownClaim { .. } => Reason::UnknownClaim,
            Self::ForbiddenDevice { .. } => Reason::HostDeviceNotPermitted,
        }
    }

    /// Whether it lies in something that may still come, and not in the VMI.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::UnknownClaim { .. })
    }

    pub(crate) fn unsupported(field: impl Into<String>) -> Self {
        Self::Unsupported {
            field: field.into(),
        }
    }

    pub(crate) fn missing(field: impl Into<String>) -> Self {
        Self::Missing {
            field: field.into(),
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, problem: &(impl ToString + ?Sized)) -> Self {
        let problem = problem.to_string();
        Self::Invalid {
            field: field.into(),
            problem,
        }
    }
}
