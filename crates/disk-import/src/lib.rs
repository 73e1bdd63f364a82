//! Fills a volume with a disk image from elsewhere: a web server, a bucket, an image of a registry,
//! another volume, a client that sends it, a backup, or nothing.
//!
//! [`main`] is the program `disk-import`, which runs in a pod of its own. Bytes are pushed from the
//! source through [`pipeline`] into the disk: checksum, decompression, detection of the format, and
//! either straight into the disk (raw) or into scratch space, which `qemu-img` converts in a process
//! with limits.
//!
//! **Invariants**: a disk gets its name only when it is complete and on disk; a format is taken from
//! the bytes, never from a name or a header of the server; no image may refer to another file; the
//! memory and space that an image can claim are bounded; every failure has a reason and says whether
//! a retry can help.
//!
//! It must not know Kubernetes: it gets paths, sizes and an address.

mod checksum;
mod connect;
mod convert;
mod decompress;
mod detect;
mod disk;
mod error;
mod fetch;
mod files;
mod google;
mod pipeline;
mod program;
mod progress;
mod qcow2;
mod restore;
mod s3;
mod source;
mod upload;
mod version;

use checksum::Checksum;
use error::ImportError;

pub use program::main;
