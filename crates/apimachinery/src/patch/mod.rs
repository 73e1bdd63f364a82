//! The three patch formats for changing a part of an object.
//!
//! Invariant: a failed patch changes nothing; it works on a copy until the end.

pub mod json;
pub mod merge;
pub mod strategic;

use crate::{Reason, Status};

/// Why a patch was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Not a valid patch.
    #[error("error decoding patch: {0}")]
    Malformed(String),
    /// A valid patch that does not apply to this object: a missing path, a failed `test`.
    #[error("{0}")]
    Inapplicable(String),
    /// An item of a keyed list without its key.
    #[error("{0}")]
    Keyless(String),
    #[error("The allowed maximum operations in a JSON patch is {max}, got {got}")]
    TooManyOperations { max: usize, got: usize },
}

impl PatchError {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "PatchMalformed",
            Self::Inapplicable(_) => "PatchInapplicable",
            Self::Keyless(_) => "PatchKeyless",
            Self::TooManyOperations { .. } => "PatchTooLarge",
        }
    }

    /// The response to the client.
    pub fn to_status(&self) -> Status {
        match self {
            Self::Malformed(_) => Status::bad_request(self.to_string()),
            Self::Inapplicable(_) => Status::unprocessable_patch(),
            // kube-apiserver returns this error unchanged.
            Self::Keyless(why) => Status::new(Reason::Unknown, why.clone()),
            Self::TooManyOperations { .. } => Status::request_entity_too_large(&self.to_string()),
        }
    }
}
