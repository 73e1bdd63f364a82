//! Disks in container images: found where an image is mounted, and copied out of an image where
//! nodes mount none.
//!
//! The program runs inside a stranger's image, which holds no shell, no library and no user of ours;
//! so it is static, small, and does this one thing.
//!
//! **Invariants**: nothing in an image is followed out of it, no link in it at all, and nothing that
//! is mounted into it is taken for a part of it; a copy has its name only when it is whole, and is
//! never touched again, so whoever is killed in the middle starts afresh.
//!
//! It must not know what a disk's bytes mean; that is for whoever uses it.

pub mod beneath;
mod copy;
mod find;
mod program;

pub use copy::{CopyError, copy};
pub use find::{FindError, Found, find};
pub use program::{IMAGE_AT_FAULT, main};
