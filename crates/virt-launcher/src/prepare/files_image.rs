//! Images of the files that other objects hold: config maps, secrets, fields of the pod, tokens.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Dir, FileType};

use container_disk::beneath;

use super::{PrepareError, bounded};

/// A config map holds at most 1 MiB; several sources may be joined in one directory.
const MAX_ALL: usize = 4 << 20;
const MAX_FILES: usize = 4096;
/// What an image can hold; the root is the first level.
const MAX_DEPTH: usize = 7;
/// What a kubelet keeps beside the files: the real ones are below, and links lead to them.
const KUBELETS_OWN: &[u8] = b"..";

/// Every file below a directory, by its path there, in an order that does not change.
pub(super) fn collect(directory: &Path) -> Result<Vec<(String, Vec<u8>)>, PrepareError> {
    let root = beneath::directory(directory).map_err(|err| {
        if err.kind() == io::ErrorKind::NotFound {
            // A mount that is not there yet.
            PrepareError::MissingFile {
                name: "its files".to_owned(),
                tried: vec![directory.display().to_string()],
            }
        } else {
            PrepareError::at(directory)(err)
        }
    })?;
    let mut found = Found {
        directory,
        root: &root,
        files: Vec::new(),
        bytes: 0,
    };
    found.descend(Path::new(""), MAX_DEPTH)?;
    found.files.sort();
    Ok(found.files)
}

struct Found<'a> {
    directory: &'a Path,
    root: &'a File,
    files: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

impl Found<'_> {
    fn descend(&mut self, path: &Path, depth: usize) -> Result<(), PrepareError> {
        let here = if path.as_os_str().is_empty() {
            self.root.try_clone()
        } else {
            beneath::read_over_links(self.root, path).map(File::from)
        };
        let shown = self.directory.join(path);
        let at = PrepareError::at(&shown);
        let entries = here
            .and_then(|here| Ok(Dir::read_from(here)?))
            .map_err(&at)?;
        for entry in entries {
            let entry = entry.map_err(|errno| at(errno.into()))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name.starts_with(KUBELETS_OWN) {
                continue;
            }
            let name = std::str::from_utf8(name).map_err(|_| PrepareError::Name {
                path: shown.clone(),
            })?;
            self.take(&path.join(name), depth)?;
        }
        Ok(())
    }

    fn take(&mut self, path: &Path, depth: usize) -> Result<(), PrepareError> {
        let shown = self.directory.join(path);
        let at = PrepareError::at(&shown);
        let opened = beneath::read_over_links(self.root, path).map_err(&at)?;
        let stat = rustix::fs::fstat(&opened).map_err(|errno| at(errno.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth > 1 => self.descend(path, depth - 1),
            FileType::RegularFile => self.add(path, File::from(opened), &shown),
            _ => Err(PrepareError::NotAFile {
                path: shown.clone(),
            }),
        }
    }

    fn add(&mut self, path: &Path, file: File, shown: &Path) -> Result<(), PrepareError> {
        let bytes = bounded(file, shown)?;
        self.bytes += bytes.len();
        if self.bytes > MAX_ALL || self.files.len() >= MAX_FILES {
            return Err(PrepareError::TooLarge {
                path: self.directory.to_owned(),
                limit: u64::try_from(MAX_ALL).unwrap_or(u64::MAX),
            });
        }
        let name = path.to_str().ok_or_else(|| PrepareError::Name {
            path: shown.to_owned(),
        })?;
        self.files.push((name.to_owned(), bytes));
        Ok(())
    }
}
