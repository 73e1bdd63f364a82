//! Why data volumes could not be created or adopted.

use reasons::Reason;
use reconcile::{Key, Retry, WriteError};

/// Why a data volume could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataVolumeError {
    #[error("create data volume {name}")]
    Create {
        name: String,
        #[source]
        source: WriteError,
    },
    #[error("adopt data volume {name}")]
    Adopt {
        name: String,
        #[source]
        source: WriteError,
    },
    #[error("find the source of data volume {name}")]
    Source {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("data volume {name} is made from data source {wanted}, which does not exist")]
    NoSource { name: String, wanted: Key },
    #[error(
        "account {account} must not copy from namespace {namespace}: allow it to create \
         datavolumes/source of cdi.kubevirt.io there"
    )]
    Unauthorized { account: String, namespace: String },
}

impl DataVolumeError {
    /// For events and metrics.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Unauthorized { .. } => Reason::UnauthorizedDataVolumeCreate,
            Self::Create { .. }
            | Self::Adopt { .. }
            | Self::Source { .. }
            | Self::NoSource { .. } => Reason::FailedDataVolumeCreate,
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Create { source, .. } | Self::Adopt { source, .. } => source.retry(),
            Self::Source { .. } | Self::NoSource { .. } | Self::Unauthorized { .. } => {
                Retry::BackOff
            }
        }
    }
}
