//! Collects the files of config maps, secrets, the downward API and service account tokens for an
//! image.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Dir, FileType};

use container_disk::beneath;

use super::{PrepareError, read_bounded};

/// Bytes of all files. A config map holds at most 1 MiB; a directory may combine several sources.
const MAX_TOTAL: usize = 4 << 20;
const MAX_FILES: usize = 4096;
/// Directory levels of an ISO 9660 image; the root is the first one.
const MAX_DEPTH: usize = 7;
/// The prefix of the kubelet's own directories: they hold the files, and links lead to them.
const KUBELET_PREFIX: &[u8] = b"..";

/// Every file below a directory with its relative path, sorted.
pub(super) fn collect(directory: &Path) -> Result<Vec<(String, Vec<u8>)>, PrepareError> {
    let root = beneath::directory(directory).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            // The volume may not be mounted yet.
            PrepareError::MissingFile {
                name: "its files".to_owned(),
                tried: vec![directory.display().to_string()],
            }
        } else {
            PrepareError::at(directory)(error)
        }
    })?;
    let mut collector = Collector {
        directory,
        root: &root,
        files: Vec::new(),
        bytes: 0,
    };
    collector.descend(Path::new(""), MAX_DEPTH)?;
    collector.files.sort();
    Ok(collector.files)
}

struct Collector<'a> {
    directory: &'a Path,
    root: &'a File,
    files: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

impl Collector<'_> {
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
            if name == b"." || name.starts_with(KUBELET_PREFIX) {
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
        let bytes = read_bounded(file, shown)?;
        self.bytes += bytes.len();
        if self.bytes > MAX_TOTAL || self.files.len() >= MAX_FILES {
            return Err(PrepareError::TooLarge {
                path: self.directory.to_owned(),
                limit: u64::try_from(MAX_TOTAL).unwrap_or(u64::MAX),
            });
        }
        let name = path.to_str().ok_or_else(|| PrepareError::Name {
            path: shown.to_owned(),
        })?;
        self.files.push((name.to_owned(), bytes));
        Ok(())
    }
}
