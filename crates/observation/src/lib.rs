//! Reads the objects that `diagnosis` explains, with the rights of a client.
//!
//! **Invariant**: reads only; what the client may not read is noted in the result.

mod observe;

pub use observe::{Target, observe};
