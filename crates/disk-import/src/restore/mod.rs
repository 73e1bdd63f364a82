//! Restores a disk from a backup: the files of a full backup and of the increments that build on it, in a
//! directory each, become one disk.
//!
//! - [`chain`] reads `backup.json` and follows parents, [`layer`] reads one qcow2 file, [`merge`] writes
//!   the disk.
//!
//! **Invariants**: whatever is in the directories is untrusted: no link is followed and no name leaves the claim;
//! counts, lengths and sizes are bounded before they cost memory; a file that refers to another one is refused.
//! Every file is checked against its checksum, where it has one, and all tables are read before the disk is changed;
//! a file that changes meanwhile leaves no disk. The disk is written from its beginning to its end, once, and gets its
//! name when it is complete ([`crate::disk`]).

mod chain;
mod layer;
mod merge;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use error_chain::error_chain;
use import_report::Report;

use crate::ImportError;
use crate::disk::{Disk, Place};
use crate::program::report;
use crate::progress::Progress;
use layer::Layer;

pub(crate) use chain::MAX_CHAIN;

/// The first argument of the program that only looks.
pub(crate) const INSPECT: &str = "inspect-backup";
/// The report of more would not fit into a termination message.
const MAX_VOLUMES: usize = 32;

/// Why a backup cannot be restored. Nothing but other files would help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BackupProblem {
    #[error("{0:?} is no name of a directory of a backup")]
    Name(String),
    #[error("the claim has no directory {0}")]
    NoDirectory(String),
    #[error("directory {0} has no backup.json, so its backup is not complete")]
    NoManifest(String),
    #[error("backup.json of directory {directory}: {problem}")]
    Manifest { directory: String, problem: String },
    #[error("more than {MAX_CHAIN} backups build on each other")]
    TooLong,
    #[error("the backup in directory {0} builds on itself")]
    Loop(String),
    #[error("directory {directory} has no volume {volume}")]
    NoVolume { directory: String, volume: String },
    #[error(
        "the backup has {0} volumes, and a restore takes up to {MAX_VOLUMES}: list them in spec.volumes"
    )]
    TooManyVolumes(usize),
    #[error("file {file} of directory {directory}: {problem}")]
    File {
        directory: String,
        file: String,
        problem: String,
    },
}

impl From<BackupProblem> for ImportError {
    fn from(problem: BackupProblem) -> Self {
        Self::Backup(problem.to_string())
    }
}

/// A restored disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Restored {
    /// The size of the disk.
    pub(crate) bytes: u64,
    /// Whether the checksums of all files were known, and right.
    pub(crate) verified: bool,
}

/// Restores one volume of the backup in a directory of the claim at `root`.
pub(crate) fn restore(
    root: &Path,
    directory: &str,
    volume: &str,
    place: &Place,
) -> Result<Restored, ImportError> {
    fill(chain::open(root, directory, volume)?, place)
}

/// Writes the disk of a chain, whose newest file is the first.
fn fill(mut layers: Vec<Layer>, place: &Place) -> Result<Restored, ImportError> {
    let mut progress = Progress::default();
    let size = merge::size(&layers);
    let files = length(&layers);
    let total = size.saturating_add(files);
    let mut read = 0;
    let verified = verify(&layers, |bytes| {
        read += bytes;
        progress.show(read, Some(total));
    })?;
    let data = merge::data_bytes(&mut layers)?;
    place.make_room(size, data)?;
    let room = place.room()?;
    if size > room {
        // Before a byte of a device is changed.
        return Err(ImportError::TooLarge { found: size, room });
    }
    let mut disk = Disk::create(place, room)?;
    merge::write(&mut layers, &mut disk, |at| {
        progress.show(files.saturating_add(at), Some(total));
    })?;
    for layer in &layers {
        layer.check_unchanged()?;
    }
    let bytes = disk.finish()?;
    Ok(Restored { bytes, verified })
}

/// Of all files.
fn length(layers: &[Layer]) -> u64 {
    let files = layers.iter().map(Layer::length);
    files.fold(0, u64::saturating_add)
}

/// Compares the checksums of all files; false if some have none. `on_read` gets the bytes of each step.
fn verify(layers: &[Layer], mut on_read: impl FnMut(u64)) -> Result<bool, ImportError> {
    let mut verified = true;
    for layer in layers {
        verified &= layer.check_sum(&mut on_read)?;
    }
    Ok(verified)
}

/// Prints what the backup in a directory holds.
#[derive(Debug, Parser)]
#[command(name = "disk-import inspect-backup")]
struct Arguments {
    /// File for the termination message
    #[arg(long, default_value = "/dev/termination-log")]
    termination_log: PathBuf,
    /// Read all files: compare their checksums, and check their tables
    #[arg(long)]
    verify: bool,
    /// Where the claim of the backup is mounted
    root: PathBuf,
    /// The directory in it
    directory: String,
    /// The volumes; all without any
    volumes: Vec<String>,
}

/// Runs the program that only looks, with the arguments after its verb.
pub(crate) fn inspect_main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from(INSPECT)).chain(words);
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let depth = if arguments.verify {
        Depth::Content
    } else {
        Depth::Headers
    };
    let (root, directory) = (&arguments.root, &arguments.directory);
    let found = inspect(root, directory, &arguments.volumes, depth);
    let (made, code) = match found {
        Ok(volumes) => (Report::inspected(volumes), ExitCode::SUCCESS),
        Err(error) => {
            let (reason, message) = (error.reason().as_str(), error_chain(&error));
            let made = Report::failure(reason, message, error.is_transient());
            (made, ExitCode::FAILURE)
        }
    };
    report(&made, &arguments.termination_log);
    code
}

/// How much of a backup is inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Headers,
    /// Also checksums and tables.
    Content,
}

/// The volumes of a backup, or those that are asked for, and the sizes of their disks. The whole chain of each
/// can be read. The files of one volume are open at a time.
fn inspect(
    root: &Path,
    directory: &str,
    volumes: &[String],
    depth: Depth,
) -> Result<BTreeMap<String, u64>, ImportError> {
    let all = if volumes.is_empty() {
        chain::volumes(root, directory)?
    } else {
        volumes.to_vec()
    };
    if all.len() > MAX_VOLUMES {
        return Err(BackupProblem::TooManyVolumes(all.len()).into());
    }
    let (mut found, mut total) = (BTreeMap::new(), 0_u64);
    for volume in all {
        let layers = chain::open(root, directory, &volume)?;
        total = total.saturating_add(length(&layers));
        found.insert(volume, merge::size(&layers));
    }
    if depth == Depth::Content {
        let (mut progress, mut read) = (Progress::default(), 0_u64);
        for volume in found.keys() {
            let mut layers = chain::open(root, directory, volume)?;
            verify(&layers, |bytes| {
                read = read.saturating_add(bytes);
                progress.show(read, Some(total));
            })?;
            merge::data_bytes(&mut layers)?;
        }
    }
    Ok(found)
}
