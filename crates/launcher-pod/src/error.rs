//! Why a VMI cannot have a pod.

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
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => "UnsupportedField",
            Self::Invalid { .. } => "InvalidField",
            Self::Missing { .. } => "MissingField",
            Self::UnknownClaim { .. } => "UnknownClaim",
            Self::ForbiddenDevice { .. } => "HostDeviceNotPermitted",
        }
    }

    /// Whether the cause is a missing object that may still appear, and not the VMI itself.
    pub fn is_transient(&self) -> bool {
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
