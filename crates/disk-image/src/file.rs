//! Probing and creating image files.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::{Blueprint, Description, PROBE_LENGTH, ProbeError, probe};

/// Why an image could not be read or created.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("use the image's file")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("not a regular file")]
    NotAFile,
}

/// Probes an open image. The caller opens it and so decides which links are followed.
pub fn probe_file(file: &File) -> Result<Description, FileError> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile);
    }
    let mut head = Vec::new();
    file.take(u64::try_from(PROBE_LENGTH).unwrap_or(u64::MAX))
        .read_to_end(&mut head)?;
    Ok(probe(&head, metadata.len())?)
}

/// Creates the image as a new file that only its owner may use; an existing file is an error.
pub fn write_new(path: &Path, blueprint: &Blueprint) -> Result<(), FileError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    write_to(&file, blueprint)
}

/// Writes the image to an empty file.
pub fn write_to(file: &File, blueprint: &Blueprint) -> Result<(), FileError> {
    let layout = blueprint.layout();
    file.set_len(layout.length)?;
    for (at, bytes) in layout.pieces() {
        file.write_all_at(bytes, at)?;
    }
    Ok(())
}
