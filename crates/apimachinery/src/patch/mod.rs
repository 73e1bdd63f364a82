//! The three kinds of patch a client may send to change a part of an object.
//!
//! Invariant: a patch that fails leaves nothing half changed; the target is a copy until the end.

pub mod json;
pub mod merge;
pub mod strategic;

use crate::{Reason, Status};

/// Why a patch was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Not a patch at all.
    #[error("error decoding patch: {0}")]
    Malformed(String),
    /// A patch, but not for this object: a path that is not there, a failed `test`.
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

    /// The answer to the client.
    pub fn to_status(&self) -> Status {
        match self {
            Self::Malformed(_) => Status::bad_request(self.to_string()),
            Self::Inapplicable(_) => Status::unprocessable_patch(),
            // The original passes this one on as it is.
            Self::Keyless(why) => Status::new(Reason::Unknown, why.clone()),
            Self::TooManyOperations { .. } => Status::request_entity_too_large(&self.to_string()),
        }
    }
}
