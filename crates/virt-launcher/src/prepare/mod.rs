//! Creates the files that must exist before the domain is defined.
//!
//! Each step may be repeated: an existing file is left as it is, and a new file appears complete,
//! by a rename. Everything here blocks and has to run on a thread of its own.

mod backing;
mod error;
mod files_image;
mod raw_disk;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::Path;

use disk_image::{BackingFile, Blueprint};
use launcher_channel::{FileSource, Prepare, SeedFile};

pub(crate) use self::error::PrepareError;
use serde_json::json;

use crate::{file, secret_files};

/// A mounted secret or config map holds at most 1 MiB.
const MAX_SEED_FILE: u64 = 1 << 20;

/// Carries out all steps in order.
pub(crate) fn all(steps: &[Prepare]) -> Result<(), PrepareError> {
    steps.iter().try_for_each(prepare)
}

fn prepare(step: &Prepare) -> Result<(), PrepareError> {
    if let Some(path) = target(step) {
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        tracing::info!(path = %path.display(), "creating a file");
    }
    create(step)?;
    failpoints::after(failpoint(step));
    Ok(())
}

fn create(step: &Prepare) -> Result<(), PrepareError> {
    match step {
        Prepare::Overlay { path, backing } => overlay(Path::new(path), backing),
        Prepare::EmptyDisk { path, bytes } => {
            let path = Path::new(path);
            let blueprint = Blueprint::empty(*bytes).map_err(|source| PrepareError::Blueprint {
                path: path.to_owned(),
                source,
            })?;
            write_image(path, &blueprint)
        }
        Prepare::Seed { path, label, files } => write_seed(Path::new(path), label, files),
        Prepare::Text { path, text } => {
            let path = Path::new(path);
            file::replace(path, text.as_bytes()).map_err(PrepareError::at(path))
        }
        Prepare::Link { path, target } => {
            let path = Path::new(path);
            link(path, target).map_err(PrepareError::at(path))
        }
        Prepare::FilesImage {
            path,
            label,
            directory,
        } => {
            let files = files_image::collect(Path::new(directory))?;
            write_iso(Path::new(path), label, &files)
        }
        Prepare::RawDisk {
            directory,
            name,
            access,
        } => raw_disk::prepare(Path::new(directory), name, access),
    }
}

fn failpoint(step: &Prepare) -> &'static str {
    match step {
        Prepare::Overlay { .. } => "virt-launcher/prepare/overlay",
        Prepare::EmptyDisk { .. } => "virt-launcher/prepare/empty-disk",
        Prepare::Seed { .. } => "virt-launcher/prepare/seed",
        Prepare::Text { .. } => "virt-launcher/prepare/text",
        Prepare::Link { .. } => "virt-launcher/prepare/link",
        Prepare::FilesImage { .. } => "virt-launcher/prepare/files-image",
        Prepare::RawDisk { .. } => "virt-launcher/prepare/raw-disk",
    }
}

/// The file that a step creates, and that is left as it is if it exists.
fn target(step: &Prepare) -> Option<&Path> {
    match step {
        Prepare::Overlay { path, .. }
        | Prepare::EmptyDisk { path, .. }
        | Prepare::Seed { path, .. }
        | Prepare::FilesImage { path, .. }
        | Prepare::Text { path, .. }
        | Prepare::Link { path, .. } => Some(Path::new(path)),
        Prepare::RawDisk { .. } => None,
    }
}

fn overlay(path: &Path, backing: &launcher_channel::Backing) -> Result<(), PrepareError> {
    let found = backing::find(backing)?;
    let name = found.path.to_str().ok_or_else(|| PrepareError::Name {
        path: found.path.clone(),
    })?;
    let backing_file = BackingFile {
        path: name.to_owned(),
        format: found.format,
    };
    let blueprint = Blueprint::overlay(found.virtual_size, backing_file).map_err(|source| {
        PrepareError::Blueprint {
            path: path.to_owned(),
            source,
        }
    })?;
    write_image(path, &blueprint)
}

fn write_image(path: &Path, blueprint: &Blueprint) -> Result<(), PrepareError> {
    let fresh = file::beside(path).map_err(PrepareError::at(path))?;
    disk_image::write_new(&fresh, blueprint).map_err(|source| PrepareError::Image {
        path: fresh.clone(),
        source,
    })?;
    failpoints::after("virt-launcher/prepare/write-image");
    std::fs::rename(&fresh, path).map_err(PrepareError::at(path))
}

fn write_seed(path: &Path, label: &str, files: &[SeedFile]) -> Result<(), PrepareError> {
    let contents = files
        .iter()
        .map(|file| Ok((file.name.clone(), read_source(file)?)))
        .collect::<Result<Vec<_>, PrepareError>>()?;
    write_iso(path, label, &contents)
}

fn write_iso(path: &Path, label: &str, files: &[(String, Vec<u8>)]) -> Result<(), PrepareError> {
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    let image = seed::iso9660(label, &files).map_err(|source| PrepareError::Seed {
        path: path.to_owned(),
        source,
    })?;
    file::replace(path, &image).map_err(PrepareError::at(path))
}

/// The content of a file of a seed.
pub(crate) fn read_source(file: &SeedFile) -> Result<Vec<u8>, PrepareError> {
    let candidates = match &file.source {
        FileSource::Text(text) => return Ok(text.clone().into_bytes()),
        FileSource::FirstOf(candidates) => candidates,
        FileSource::WithKeys {
            object,
            member,
            directories,
        } => return with_keys(object, member, directories),
    };
    for candidate in candidates.iter().map(Path::new) {
        match File::open(candidate) {
            Ok(open) => return read_bounded(open, candidate),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(PrepareError::at(candidate)(error)),
        }
    }
    Err(PrepareError::MissingFile {
        name: file.name.clone(),
        tried: candidates.clone(),
    })
}

/// Keys in the form of cloud-init's meta data: an object from number to key.
fn with_keys(object: &str, member: &str, directories: &[String]) -> Result<Vec<u8>, PrepareError> {
    let mut keys = Vec::new();
    for directory in directories.iter().map(Path::new) {
        keys.extend(secret_files::keys(directory).map_err(PrepareError::at(directory))?);
    }
    let numbered: BTreeMap<String, String> =
        (0_usize..).map(|at| at.to_string()).zip(keys).collect();
    let mut document: serde_json::Value = serde_json::from_str(object)
        .map_err(io::Error::from)
        .map_err(PrepareError::at(Path::new(member)))?;
    document[member] = json!(numbered);
    Ok(document.to_string().into_bytes())
}

fn read_bounded(file: File, path: &Path) -> Result<Vec<u8>, PrepareError> {
    let mut bytes = Vec::new();
    file.take(MAX_SEED_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(PrepareError::at(path))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_SEED_FILE) {
        return Err(PrepareError::TooLarge {
            path: path.to_owned(),
            limit: MAX_SEED_FILE,
        });
    }
    Ok(bytes)
}

fn link(path: &Path, target: &str) -> io::Result<()> {
    let fresh = file::beside(path)?;
    symlink(target, &fresh)?;
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests;
