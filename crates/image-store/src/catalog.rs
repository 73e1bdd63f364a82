//! Which images the known layout directories hold, by name.
//!
//! The directories are looked at again before each answer, so a rebuilt layout replaces the old one
//! without anybody telling; a layout whose index is untouched is not read again. When two layouts
//! carry the same name, the first by path wins and the other is logged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::LayoutError;
use crate::layout::Layout;
use crate::manifest::{Descriptor, REF_NAME};
use crate::name;

/// An image found in a layout.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) layout: PathBuf,
    pub(crate) descriptor: Descriptor,
}

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    directories: BTreeSet<PathBuf>,
    seen: BTreeMap<PathBuf, Seen>,
}

/// What one layout held when it was last read.
#[derive(Debug)]
struct Seen {
    stamp: Stamp,
    images: Vec<(String, Descriptor)>,
}

/// Changes whenever a layout's index does.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Catalog {
    /// Makes a directory known and reads all layouts in it; the first broken one is an error.
    pub(crate) fn add(&mut self, directory: &Path) -> Result<Vec<String>, LayoutError> {
        let paths = candidates(directory)?;
        let mut names = Vec::new();
        for path in &paths {
            self.read(path)?;
            if let Some(seen) = self.seen.get(path) {
                names.extend(seen.images.iter().map(|(name, _)| name.clone()));
            }
        }
        self.directories.insert(directory.to_owned());
        Ok(names)
    }

    /// The image of that canonical name, as the directories are now.
    pub(crate) fn find(&mut self, name: &str) -> Option<Known> {
        self.refresh();
        let mut holders = self.seen.iter().filter_map(|(path, seen)| {
            let (_, descriptor) = seen
                .images
                .iter()
                .find(|(candidate, _)| candidate == name)?;
            Some(Known {
                layout: path.clone(),
                descriptor: descriptor.clone(),
            })
        });
        let first = holders.next();
        if let (Some(first), Some(second)) = (&first, holders.next()) {
            tracing::info!(
                image = name,
                used = %first.layout.display(),
                ignored = %second.layout.display(),
                "two layouts have the same image name"
            );
        }
        first
    }

    fn refresh(&mut self) {
        let mut present = BTreeSet::new();
        for directory in self.directories.clone() {
            match candidates(&directory) {
                Ok(paths) => present.extend(paths),
                Err(error) => tracing::warn!(%error, "a directory of layouts is unreadable"),
            }
        }
        self.seen.retain(|path, _| present.contains(path));
        for path in present {
            if let Err(error) = self.read(&path) {
                tracing::warn!(%error, "a layout is ignored");
                self.seen.remove(&path);
            }
        }
    }

    fn read(&mut self, path: &Path) -> Result<(), LayoutError> {
        let Some(stamp) = stamp_of(path)? else {
            self.seen.remove(path);
            return Ok(());
        };
        if self.seen.get(path).is_some_and(|seen| seen.stamp == stamp) {
            return Ok(());
        }
        let Some(layout) = Layout::open(path)? else {
            self.seen.remove(path);
            return Ok(());
        };
        let images = images_of(&layout)?;
        self.seen.insert(path.to_owned(), Seen { stamp, images });
        Ok(())
    }
}

fn images_of(layout: &Layout) -> Result<Vec<(String, Descriptor)>, LayoutError> {
    let mut images = Vec::new();
    for descriptor in layout.index()?.manifests {
        let Some(name) = descriptor.annotations.get(REF_NAME) else {
            tracing::debug!(layout = %layout.path().display(), "an image without a name");
            continue;
        };
        match name::parse(name) {
            Ok(reference) => images.push((reference.whole(), descriptor)),
            Err(error) => {
                return Err(LayoutError::NotALayout {
                    path: layout.path().to_owned(),
                    message: format!("{name:?} is not an image reference: {error}"),
                });
            }
        }
    }
    Ok(images)
}

/// A directory that is a layout itself stands for itself, any other for what lies in it.
fn candidates(directory: &Path) -> Result<Vec<PathBuf>, LayoutError> {
    if directory.join("oci-layout").is_file() {
        return Ok(vec![directory.to_owned()]);
    }
    let failed = |source| LayoutError::List {
        path: directory.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Names with a dot in front are builders' unfinished work.
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn stamp_of(path: &Path) -> Result<Option<Stamp>, LayoutError> {
    let file = if path.is_dir() {
        path.join("index.json")
    } else {
        path.to_owned()
    };
    match fs::metadata(&file) {
        Ok(metadata) => Ok(Some(Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LayoutError::Read { path: file, source }),
    }
}
