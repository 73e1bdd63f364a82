//! Objects as protobuf, which Kubernetes' own clients prefer to JSON.
//!
//! - `fields.txt` lists every message with its field numbers, `table` reads it;
//! - `decode` makes the JSON that the same Go client would have sent;
//! - `encode` writes an object from its JSON;
//! - `scalars` has types whose JSON differs from their message: times, quantities, raw JSON;
//! - `wire` reads and writes numbers and byte strings.
//!
//! Invariants: unknown fields of a body are skipped, as a newer client may send some; a kind without
//! a message is neither read nor written; depth and number of decoded values are bounded.

mod decode;
mod encode;
mod scalars;
mod table;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

pub use decode::{DecodeError, decode, decode_event};
pub use encode::{EncodeError, encode, encode_event};
pub use table::has_message;

/// The media type of a body.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Every body begins with these bytes.
const PREFIX: &[u8] = b"k8s\0";
