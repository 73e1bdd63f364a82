//! Why a VMI cannot become a domain.

/// Each names the field, so that the user knows what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error("{field}: not supported yet")]
    Unsupported { field: String },
    #[error("{field}: needs a value")]
    Missing { field: String },
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    /// The node did not tell what it should have; not the user's fault.
    #[error("render interface {interface:?}: it is not plumbed into the pod")]
    NotPlumbed { interface: String },
}

impl RenderError {
    /// A stable word for conditions and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => "UnsupportedField",
            Self::Missing { .. } => "MissingField",
            Self::Invalid { .. } => "InvalidField",
            Self::NotPlumbed { .. } => "InterfaceNotPlumbed",
        }
    }

    /// Whether the same VMI may be rendered later: the error lies in the facts about the pod, not in
    /// the VMI.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotPlumbed { .. })
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

    pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            problem: problem.into(),
        }
    }
}
