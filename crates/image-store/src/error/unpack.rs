//! Why layers cannot be unpacked. In a separate file, as the fuzz target of layers includes it
//! without the registry client.

use std::io;

use crate::digest::Digest;

/// Why layers cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("read the layer")]
    Read(#[source] io::Error),
    #[error("the layer does not match its digest {digest}")]
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
