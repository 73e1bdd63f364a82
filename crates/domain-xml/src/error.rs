//! Why a VMI cannot become a domain.

use model::{InvalidQuantity, Unsupported};

/// Each names the field, so that the user knows what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error("not supported yet: {0}")]
    Unsupported(#[from] Unsupported),
    #[error("{field}: needs a value")]
    Missing { field: String },
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    /// The facts lack the interface; the VMI is correct.
    #[error("render interface {interface:?}: it is not plumbed into the pod")]
    NotPlumbed { interface: String },
    /// The status lacks the address; the VMI is correct.
    #[error("render the vsock device: status.VSOCKCID is not set yet")]
    NoVsockAddress,
}

impl RenderError {
    /// Whether other facts may resolve it; otherwise the VMI has to change.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotPlumbed { .. } | Self::NoVsockAddress)
    }

    pub(crate) fn missing(field: impl Into<String>) -> Self {
        Self::Missing {
            field: field.into(),
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, problem: &(impl ToString + ?Sized)) -> Self {
        Self::Invalid {
            field: field.into(),
            problem: problem.to_string(),
        }
    }
}

impl From<InvalidQuantity> for RenderError {
    fn from(error: InvalidQuantity) -> Self {
        Self::invalid(error.field, &error.problem)
    }
}
