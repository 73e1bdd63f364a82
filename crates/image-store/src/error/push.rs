//! Why an image cannot be pushed to a registry.

use reasons::Reason;

use crate::error::LayoutError;
use crate::name::NameError;

#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error("{name:?} is not an image reference: {problem}")]
    Name { name: String, problem: NameError },
    #[error("{0:?} is not a media type")]
    MediaType(String),
    #[error(transparent)]
    Layout(LayoutError),
    #[error("{registry} requires credentials to push {reference}: run docker login {registry}")]
    NeedsCredentials { registry: String, reference: String },
    #[error("{registry} refuses {reference}: the credentials are wrong or may not push it")]
    Refused { registry: String, reference: String },
    #[error("communicate with registry {registry}")]
    Communication {
        registry: String,
        #[source]
        source: Box<oci_client::errors::OciDistributionError>,
    },
    #[error("{registry} reports digest {reported} for {reference}, which is not the pushed one")]
    DigestMismatch {
        registry: String,
        reference: String,
        reported: String,
    },
    #[error("the blocking task ended early")]
    Cancelled,
}

impl PushError {
    /// A stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Name { .. } => Reason::InvalidImageName,
            Self::Layout(_) | Self::MediaType(_) => Reason::LayoutUnreadable,
            Self::NeedsCredentials { .. } | Self::Refused { .. } => Reason::RegistryRefuses,
            Self::Communication { .. } | Self::DigestMismatch { .. } | Self::Cancelled => {
                Reason::ErrImagePush
            }
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Communication { .. } | Self::DigestMismatch { .. } | Self::Cancelled => true,
            Self::Name { .. }
            | Self::MediaType(_)
            | Self::Layout(_)
            | Self::NeedsCredentials { .. }
            | Self::Refused { .. } => false,
        }
    }
}
