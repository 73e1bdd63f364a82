//! Why an image did not get to a registry.

use reasons::Reason;

use crate::error::{LayoutError, Retry};
use crate::name::NameError;

#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error("{name:?} is not an image reference: {why}")]
    Name { name: String, why: NameError },
    #[error("{0:?} is no media type")]
    MediaType(String),
    #[error(transparent)]
    Layout(LayoutError),
    #[error(
        "{registry} takes {reference} from nobody without credentials: run docker login {registry}"
    )]
    NeedsCredentials { registry: String, reference: String },
    #[error("{registry} refuses {reference}: its credentials are wrong, or may not push there")]
    Refused { registry: String, reference: String },
    #[error("talk to registry {registry}")]
    Talk {
        registry: String,
        #[source]
        source: Box<oci_client::errors::OciDistributionError>,
    },
    #[error("{registry} says that {reference} is {told}, which is not what it was given")]
    Other {
        registry: String,
        reference: String,
        told: String,
    },
    #[error("the blocking task ended early")]
    Cancelled,
}

impl PushError {
    /// A stable word.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Name { .. } => Reason::InvalidImageName,
            Self::Layout(_) | Self::MediaType(_) => Reason::LayoutUnreadable,
            Self::NeedsCredentials { .. } | Self::Refused { .. } => Reason::RegistryRefuses,
            Self::Talk { .. } | Self::Other { .. } | Self::Cancelled => Reason::ErrImagePush,
        }
    }

    /// Whether the same call may succeed later.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Talk { .. } | Self::Other { .. } | Self::Cancelled => Retry::WithBackoff,
            Self::Name { .. }
            | Self::MediaType(_)
            | Self::Layout(_)
            | Self::NeedsCredentials { .. }
            | Self::Refused { .. } => Retry::Never,
        }
    }
}
