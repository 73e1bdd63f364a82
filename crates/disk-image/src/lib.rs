//! Reading and writing qcow2 headers, and the size of raw images.
//!
//! [`probe`] describes an image by its first bytes; [`Description::check_container_disk`] refuses
//! what an untrusted image must not have (a header can name files of the host). [`Blueprint`] lays
//! out a new, empty qcow2 image, standalone or as an overlay; [`write_new`] writes it to a file.
//!
//! **Invariants**: the parser is pure, reads only inside its input, and never panics; a format is
//! taken from the bytes, never from a name; an overlay names its backing file's format, so that QEMU
//! never guesses it.
//!
//! What it must not know: volumes, pods, and how to read a guest's data.

mod blueprint;
mod file;
mod probe;
mod raw;

pub use blueprint::{BackingFile, Blueprint, BlueprintError};
pub use file::{FileError, probe_file, write_new, write_to};
pub use probe::{Description, Format, PROBE_LENGTH, ProbeError, Refusal, SECTOR, probe};
pub use raw::{RawSize, TooSmall};

/// Runs the parser over `bytes`; for fuzzing. Any return is fine, a panic is the bug.
pub fn fuzz_probe(bytes: &[u8]) {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if let Ok(description) = probe(bytes, length) {
        drop(description.check_container_disk());
    }
}
