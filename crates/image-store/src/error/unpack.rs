//! What keeps layers from becoming a tree. In a file of its own, for the fuzz target of layers takes
//! it without the clients of registries.

use std::io;

use crate::digest::Digest;

/// Why layers do not become a tree.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("read the layer")]
    Read(#[source] io::Error),
    #[error("the layer is not what its digest {digest} says")]
    Corrupt { digest: Digest },
    #[error("layer type {0:?} is not supported")]
    MediaType(String),
    #[error("entry {path:?}: {message}")]
    BadEntry { path: String, message: &'static str },
    #[error("write {path:?}")]
    Write {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the image has more than {limit} {what}")]
    TooLarge { what: &'static str, limit: u64 },
}
