//! Disks in container images: found where a node mounts the image, and copied out of the image
//! where nodes mount no images.
//!
//! The program runs inside an untrusted image without a shell, libraries or users, so it is static,
//! small, and does only this.
//!
//! **Invariants**: no path leads out of an image, no link in it is followed, and files mounted into
//! it are not part of it; a copy gets its name only when it is complete, and is never changed
//! afterwards, so an interrupted copy is simply repeated.
//!
//! What it must not know: the format of a disk.

pub mod beneath;
mod copy;
mod find;
mod program;

pub use copy::{CopyError, copy};
pub use find::{FindError, Found, find};
pub use program::{IMAGE_AT_FAULT, main};
