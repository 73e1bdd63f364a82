//! Uploads of disks, with the interface of CDI.
//!
//! - `token`: what a token says, and whether it is valid;
//! - `request`: the aggregated API `upload.cdi.kubevirt.io`, which issues tokens;
//! - `target`: whether a claim can receive a disk now, and in which pod;
//! - `proxy`: the paths to which clients send disks, with a token instead of a user.
//!
//! **Invariants**: a token is for one claim, by its UID; nothing is read of a request's body before its token
//! was verified; a disk goes only to the pod that belongs to the claim, on the node that runs it.

mod proxy;
pub(crate) mod request;
mod target;
mod token;

pub use proxy::UploadProxy;
pub use token::{Signer, UploadTokens};
