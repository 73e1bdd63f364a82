//! The chain of a volume: its copies from the newest increment down to the full one.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use container_disk::beneath;
use launcher_channel::{
    BACKUP_MANIFEST, BackedUpVolume, BackupManifest, MAX_BACKUP_MANIFEST, MAX_INCREMENTS,
    ManifestError, is_plain_name,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::BackupProblem;
use super::layer::Layer;
use crate::ImportError;
use crate::error::io_failed;

/// Backups that build on each other: the increments, and the full one. Each costs an open file and its tables.
pub(crate) const MAX_CHAIN: usize = MAX_INCREMENTS + 1;

/// A directory of a backup.
struct Directory {
    name: String,
    file: File,
    manifest: BackupManifest,
    /// Of the file of the manifest.
    sum: String,
}

/// The names of all volumes of a backup.
pub(super) fn volumes(root: &Path, directory: &str) -> Result<Vec<String>, ImportError> {
    let found = Directory::open(&open_root(root)?, directory)?;
    let all = found.manifest.volumes.into_iter();
    Ok(all.map(|entry| entry.volume).collect())
}

/// Opens the copies of a volume, the newest first.
pub(super) fn open(root: &Path, directory: &str, volume: &str) -> Result<Vec<Layer>, ImportError> {
    let root = open_root(root)?;
    let mut layers = Vec::new();
    let mut visited = BTreeSet::new();
    let mut next = directory.to_owned();
    let mut child: Option<BackupManifest> = None;
    loop {
        if !visited.insert(next.clone()) {
            return Err(BackupProblem::Loop(next).into());
        }
        if visited.len() > MAX_CHAIN {
            return Err(BackupProblem::TooLong.into());
        }
        let found = Directory::open(&root, &next)?;
        if let Some(child) = &child {
            found.check_parent(child)?;
        }
        let Some(entry) = found.manifest.volume(volume) else {
            return Err(BackupProblem::NoVolume {
                directory: found.name,
                volume: volume.to_owned(),
            }
            .into());
        };
        layers.push(found.layer(entry)?);
        let Some(parent) = found.manifest.parent.clone() else {
            return Ok(layers);
        };
        next = parent;
        child = Some(found.manifest);
    }
}

fn open_root(root: &Path) -> Result<File, ImportError> {
    beneath::directory(root).map_err(io_failed("open the claim of the backup"))
}

impl Directory {
    fn open(root: &File, name: &str) -> Result<Self, ImportError> {
        if !is_plain_name(name) {
            return Err(BackupProblem::Name(name.to_owned()).into());
        }
        let file = match beneath::own_directory(root, Path::new(name)) {
            Ok(file) => File::from(file),
            Err(error) if is_absent(&error) => {
                return Err(BackupProblem::NoDirectory(name.to_owned()).into());
            }
            Err(error) => return Err(io_failed("open the directory of the backup")(error)),
        };
        let manifest = match beneath::read_own(&file, Path::new(BACKUP_MANIFEST)) {
            Ok(manifest) => File::from(manifest),
            Err(error) if is_absent(&error) => {
                return Err(BackupProblem::NoManifest(name.to_owned()).into());
            }
            Err(error) => return Err(io_failed("open backup.json")(error)),
        };
        let (manifest, sum) =
            read_manifest(manifest)?.map_err(|problem| BackupProblem::Manifest {
                directory: name.to_owned(),
                problem,
            })?;
        Ok(Self {
            name: name.to_owned(),
            file,
            manifest,
            sum,
        })
    }

    /// Whether it is what the child was built on, and no other backup of the same name.
    fn check_parent(&self, child: &BackupManifest) -> Result<(), BackupProblem> {
        let is_same = |sum: &String| sum.eq_ignore_ascii_case(&self.sum);
        let problem = if !self.manifest.is_of_same_guest(child) {
            "it is of another VM, or of another start of it, than the backup that builds on it"
        } else if self.manifest.checkpoint.as_deref() != Some(self.name.as_str()) {
            "it is not what the backup that builds on it names: its checkpoint is not its directory"
        } else if !child.parent_sha256.as_ref().is_none_or(is_same) {
            "it is not what the backup that builds on it names: its sha256 is another one"
        } else {
            return Ok(());
        };
        Err(BackupProblem::Manifest {
            directory: self.name.clone(),
            problem: problem.to_owned(),
        })
    }

    fn layer(&self, entry: &BackedUpVolume) -> Result<Layer, ImportError> {
        let problem = |problem: String| BackupProblem::File {
            directory: self.name.clone(),
            file: entry.file.clone(),
            problem,
        };
        let file = match beneath::read_own(&self.file, Path::new(&entry.file)) {
            Ok(file) => File::from(file),
            Err(error) if is_absent(&error) => {
                return Err(problem("it is missing, or a symbolic link".to_owned()).into());
            }
            Err(error) => return Err(io_failed("open a file of the backup")(error)),
        };
        let metadata = file.metadata();
        let metadata = metadata.map_err(io_failed("look at a file of the backup"))?;
        if !metadata.is_file() {
            return Err(problem("it is not a regular file".to_owned()).into());
        }
        if metadata.len() != entry.bytes {
            let (found, expected) = (metadata.len(), entry.bytes);
            let text = format!("it has {found} bytes, and backup.json says {expected}");
            return Err(problem(text).into());
        }
        Layer::open(file, entry, &self.name)
    }
}

/// The manifest and its sum. The outer error is one of the storage.
fn read_manifest(file: File) -> Result<Result<(BackupManifest, String), String>, ImportError> {
    let failed = io_failed("read backup.json");
    let metadata = file.metadata().map_err(&failed)?;
    if !metadata.is_file() {
        return Ok(Err("it is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    let mut limited = file.take(MAX_BACKUP_MANIFEST + 1);
    limited.read_to_end(&mut bytes).map_err(failed)?;
    let sum = hex::encode(Sha256::digest(&bytes));
    let found = BackupManifest::parse(&bytes);
    let found = found.map_err(|problem: ManifestError| problem.to_string());
    Ok(found.map(|manifest| (manifest, sum)))
}

/// Whether there is nothing of the name that may be opened: nothing at all, a link, or another kind of file.
fn is_absent(error: &io::Error) -> bool {
    let refused = [
        Errno::NOENT,
        Errno::LOOP,
        Errno::NOTDIR,
        Errno::XDEV,
        Errno::NXIO,
    ];
    let code = error.raw_os_error();
    refused.iter().any(|one| Some(one.raw_os_error()) == code)
}
