//! What can go wrong, one enum per operation.
//!
//! [`ImageError`] is what a kubelet would show as a container's waiting reason: its `reason()` is
//! one of the words that users know from there, and its message is a sentence for people. Errors
//! are cheap to clone, because all callers that wait for one pull get the same one.

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

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Not before somebody changed the request.
    Never,
    /// After a while, growing with each failure.
    WithBackoff,
}

/// Why there is no tree for a reference.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageError {
    #[error("{reference:?} is not an image reference: {why}")]
    InvalidName { reference: String, why: NameError },
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
    /// The word that Kubernetes users know for this failure.
    pub fn reason(&self) -> Reason {
        match self {
            Self::InvalidName { .. } => Reason::InvalidImageName,
            Self::NotPresent { .. } => Reason::ErrImageNeverPull,
            Self::Pull { .. } | Self::Layout { .. } | Self::Unpack { .. } | Self::Store { .. } => {
                Reason::ErrImagePull
            }
        }
    }

    /// Whether the same call may succeed later. An image that is not there today may be pushed
    /// tomorrow, so only a name that cannot be one is final.
    pub fn retry(&self) -> Retry {
        match self {
            Self::InvalidName { .. } => Retry::Never,
            _ => Retry::WithBackoff,
        }
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

/// Why a registry did not give us an image.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("{registry} does not have {reference}, or needs credentials for it")]
    NotFound { registry: String, reference: String },
    #[error("{registry} refuses the credentials for {reference}")]
    Unauthorized { registry: String, reference: String },
    #[error("talk to registry {registry}")]
    Talk {
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
    #[error("{what} from {registry} is not what its digest says")]
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
    #[error("keep a downloaded blob")]
    Keep(#[source] io::Error),
}

/// Why the store's own directory does not work.
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
    fn reasons_are_the_words_of_the_kubelet() {
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
                    why: NameError::Empty,
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
            assert_eq!(error.retry() == Retry::Never, reason == "InvalidImageName");
        }
    }
}
