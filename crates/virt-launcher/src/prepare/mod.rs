//! Files that must be there before the domain is defined.
//!
//! Each step may be repeated: a file that exists is left as it is, and one that is made appears
//! whole, by a rename. Everything here blocks and belongs on a thread of its own.

mod backing;
mod error;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::Path;

use disk_image::{Blueprint, Under};
use launcher_channel::{FileSource, Prepare, SeedFile};

pub(crate) use self::error::PrepareError;
use crate::file;

/// A mounted secret or config map holds at most 1 MiB.
const MAX_SEED_FILE: u64 = 1 << 20;

/// Does all steps in order.
pub(crate) fn all(steps: &[Prepare]) -> Result<(), PrepareError> {
    steps.iter().try_for_each(one)
}

fn one(step: &Prepare) -> Result<(), PrepareError> {
    let path = Path::new(match step {
        Prepare::Overlay { path, .. }
        | Prepare::EmptyDisk { path, .. }
        | Prepare::Seed { path, .. }
        | Prepare::Link { path, .. } => path,
    });
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    tracing::info!(path = %path.display(), "preparing");
    match step {
        Prepare::Overlay { backing, .. } => overlay(path, backing),
        Prepare::EmptyDisk { bytes, .. } => {
            let blueprint = Blueprint::empty(*bytes).map_err(|source| PrepareError::Blueprint {
                path: path.to_owned(),
                source,
            })?;
            image(path, &blueprint)
        }
        Prepare::Seed { label, files, .. } => seed_image(path, label, files),
        Prepare::Link { target, .. } => link(path, target).map_err(PrepareError::at(path)),
    }
}

fn overlay(path: &Path, backing: &launcher_channel::Backing) -> Result<(), PrepareError> {
    let (name, file) = backing::open(backing)?;
    let at = || name.clone();
    let under = disk_image::probe_file(&file)
        .map_err(|source| PrepareError::Image { path: at(), source })?;
    under
        .check_container_disk()
        .map_err(|source| PrepareError::ForbiddenImage { path: at(), source })?;
    let text = name
        .to_str()
        .ok_or_else(|| PrepareError::Name { path: at() })?
        .to_owned();
    let blueprint = Blueprint::overlay(
        under.virtual_size,
        Under {
            path: text,
            format: under.format,
        },
    )
    .map_err(|source| PrepareError::Blueprint {
        path: path.to_owned(),
        source,
    })?;
    image(path, &blueprint)
}

fn image(path: &Path, blueprint: &Blueprint) -> Result<(), PrepareError> {
    let fresh = file::beside(path).map_err(PrepareError::at(path))?;
    disk_image::write_new(&fresh, blueprint).map_err(|source| PrepareError::Image {
        path: fresh.clone(),
        source,
    })?;
    std::fs::rename(&fresh, path).map_err(PrepareError::at(path))
}

fn seed_image(path: &Path, label: &str, files: &[SeedFile]) -> Result<(), PrepareError> {
    let contents = files
        .iter()
        .map(|file| Ok((file.name.as_str(), content(file)?)))
        .collect::<Result<Vec<_>, PrepareError>>()?;
    let files: Vec<(&str, &[u8])> = contents
        .iter()
        .map(|(name, bytes)| (*name, bytes.as_slice()))
        .collect();
    let image = seed::iso9660(label, &files).map_err(|source| PrepareError::Seed {
        path: path.to_owned(),
        source,
    })?;
    file::replace(path, &image).map_err(PrepareError::at(path))
}

fn content(file: &SeedFile) -> Result<Vec<u8>, PrepareError> {
    let candidates = match &file.source {
        FileSource::Text(text) => return Ok(text.clone().into_bytes()),
        FileSource::FirstOf(candidates) => candidates,
    };
    for candidate in candidates.iter().map(Path::new) {
        match File::open(candidate) {
            Ok(open) => return bounded(open, candidate),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => return Err(PrepareError::at(candidate)(err)),
        }
    }
    Err(PrepareError::MissingFile {
        name: file.name.clone(),
        tried: candidates.clone(),
    })
}

fn bounded(file: File, path: &Path) -> Result<Vec<u8>, PrepareError> {
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
