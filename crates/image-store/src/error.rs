//! Errors, one enum per operation.
//!
//! [`ImageError::reason`] is the waiting reason that a kubelet sets for a container. Errors are
//! cheap to clone, as all callers that wait for one pull get the same one.

mod push;
mod unpack;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use reasons::Reason;

use crate::digest::Digest;
use crate::name::NameError;

pub use push::PushError;
pub use unpack::UnpackError;

/// Why an image is not available.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageError {
    #[error("{reference:?} is not an image reference: {problem}")]
    InvalidName {
        reference: String,
        problem: NameError,
    },
    #[error("image {reference} is not present on this host and its pull policy is Never")]
    NotPresent { reference: String },
    #[error("pull image {reference}")]
    Pull {
        reference: String,
        #[source]
        source: Arc<RegistryError>,
    },
    #[error("read image {reference} from its layout")]
    Layout {
        reference: String,
        #[source]
        source: Arc<LayoutError>,
    },
    #[error("unpack image {reference}")]
    Unpack {
        reference: String,
        #[source]
        source: Arc<UnpackError>,
    },
    #[error("store image {reference}")]
    Store {
        reference: String,
        #[source]
        source: Arc<StoreError>,
    },
}

impl ImageError {
    /// The reason that kubelets use for this failure.
    pub fn reason(&self) -> Reason {
        match self {
            Self::InvalidName { .. } => Reason::InvalidImageName,
            Self::NotPresent { .. } => Reason::ErrImageNeverPull,
            Self::Pull { .. } | Self::Layout { .. } | Self::Unpack { .. } | Self::Store { .. } => {
                Reason::ErrImagePull
            }
        }
    }

    /// Whether the same call may succeed later. A missing image may be pushed later, so only an
    /// invalid name is permanent.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::InvalidName { .. })
    }
}

/// Why an OCI layout cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("list layouts in {}", path.display())]
    List {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not an OCI layout: {message}", path.display())]
    NotALayout { path: PathBuf, message: String },
    #[error("blob {digest} is missing from {}", path.display())]
    MissingBlob { path: PathBuf, digest: Digest },
    #[error("blob {digest} in {} does not have that digest", path.display())]
    Corrupt { path: PathBuf, digest: Digest },
    #[error("{what} in {} is not valid", path.display())]
    Parse {
        path: PathBuf,
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("{} has no image for {platform}", path.display())]
    NoPlatform { path: PathBuf, platform: String },
    #[error("{what} in {} is larger than {limit} bytes", path.display())]
    TooLarge {
        path: PathBuf,
        what: &'static str,
        limit: u64,
    },
}

/// Why an image cannot be pulled from a registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("{registry} does not have {reference}, or needs credentials for it")]
    NotFound { registry: String, reference: String },
    #[error("{registry} refuses the credentials for {reference}")]
    Unauthorized { registry: String, reference: String },
    #[error("communicate with registry {registry}")]
    Communication {
        registry: String,
        #[source]
        source: Box<oci_client::errors::OciDistributionError>,
    },
    #[error("read blob {digest} from {registry}")]
    Transfer {
        registry: String,
        digest: Digest,
        #[source]
        source: io::Error,
    },
    #[error("{what} from {registry} does not match its digest")]
    Corrupt { registry: String, what: String },
    #[error("{what} from {registry} is larger than {limit} bytes")]
    TooLarge {
        registry: String,
        what: &'static str,
        limit: u64,
    },
    #[error("{what} from {registry} is not valid")]
    Parse {
        registry: String,
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("{registry} has no image for {platform}")]
    NoPlatform { registry: String, platform: String },
    #[error("save a downloaded blob")]
    Save(#[source] io::Error),
}

/// Why the store's directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not valid", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the blocking task ended early")]
    Cancelled,
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_of_the_kubelet() {
        let reference = || "a".to_owned();
        let cases = [
            (
                ImageError::NotPresent {
                    reference: reference(),
                },
                "ErrImageNeverPull",
            ),
            (
                ImageError::InvalidName {
                    reference: reference(),
                    problem: NameError::Empty,
                },
                "InvalidImageName",
            ),
            (
                ImageError::Store {
                    reference: reference(),
                    source: StoreError::Cancelled.into(),
                },
                "ErrImagePull",
            ),
        ];
        for (error, reason) in cases {
            assert_eq!(error.reason(), reason);
            assert_eq!(error.is_transient(), reason != "InvalidImageName");
        }
    }
}
