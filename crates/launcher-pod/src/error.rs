//! Why a VMI cannot have a pod.

use model::InvalidQuantity;
use reasons::Reason;

/// Each names the field, so that the user knows what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    #[error("{field}: needs a value")]
    Missing { field: String },
    #[error("{field}: persistent volume claim {claim} not found")]
    UnknownClaim { field: String, claim: String },
    #[error("{field}: the cluster does not permit the device {device}")]
    ForbiddenDevice { field: String, device: String },
    #[error(
        "{field}: the cluster has no network binding {binding:?}; use one that the KubeVirt object registers in \
         spec.configuration.network.binding"
    )]
    UnknownBinding { field: String, binding: String },
}

impl PodError {
    /// A stable reason for conditions and events.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Invalid { .. } => Reason::InvalidField,
            Self::Missing { .. } => Reason::MissingField,
            Self::UnknownClaim { .. } => Reason::UnknownClaim,
            Self::ForbiddenDevice { .. } => Reason::HostDeviceNotPermitted,
            Self::UnknownBinding { .. } => Reason::NetworkBindingNotRegistered,
        }
    }

    /// Whether the cause is a missing object or setting that may still appear, and not the VMI itself.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::UnknownClaim { .. } | Self::UnknownBinding { .. }
        )
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

impl From<InvalidQuantity> for PodError {
    fn from(error: InvalidQuantity) -> Self {
        Self::invalid(error.field, &error.problem)
    }
}
