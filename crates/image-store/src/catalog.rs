//! The images of the registered layout directories, by name.
//!
//! Each lookup scans the directories again, so a rebuilt layout is found at once; an unchanged
//! layout is not read again. If two layouts have the same image name, the first by path is used and
//! the other is logged.

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
pub(crate) struct Located {
    pub(crate) layout: PathBuf,
    pub(crate) descriptor: Descriptor,
}

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    directories: BTreeSet<PathBuf>,
    layouts: BTreeMap<PathBuf, Cached>,
}

/// The images of a layout when it was last read.
#[derive(Debug)]
struct Cached {
    stamp: Stamp,
    images: Vec<(String, Descriptor)>,
}

/// Changes whenever a layout's index changes.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Catalog {
    /// Registers a directory and reads all layouts in it; fails at the first invalid one.
    pub(crate) fn add(&mut self, directory: &Path) -> Result<Vec<String>, LayoutError> {
        let paths = candidates(directory)?;
        let mut names = Vec::new();
        for path in &paths {
            self.read(path)?;
            if let Some(cached) = self.layouts.get(path) {
                names.extend(cached.images.iter().map(|(name, _)| name.clone()));
            }
        }
        self.directories.insert(directory.to_owned());
        Ok(names)
    }

    /// The image of that canonical name in the current directories.
    pub(crate) fn find(&mut self, name: &str) -> Option<Located> {
        self.refresh();
        let mut holders = self.layouts.iter().filter_map(|(path, cached)| {
            let (_, descriptor) = cached
                .images
                .iter()
                .find(|(candidate, _)| candidate == name)?;
            Some(Located {
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
                Err(error) => tracing::warn!(%error, "layout directory cannot be read"),
            }
        }
        self.layouts.retain(|path, _| present.contains(path));
        for path in present {
            if let Err(error) = self.read(&path) {
                tracing::warn!(%error, "invalid layout is ignored");
                self.layouts.remove(&path);
            }
        }
    }

    fn read(&mut self, path: &Path) -> Result<(), LayoutError> {
        let Some(stamp) = stamp_of(path)? else {
            self.layouts.remove(path);
            return Ok(());
        };
        if self
            .layouts
            .get(path)
            .is_some_and(|cached| cached.stamp == stamp)
        {
            return Ok(());
        }
        let Some(layout) = Layout::open(path)? else {
            self.layouts.remove(path);
            return Ok(());
        };
        let images = images_of(&layout)?;
        self.layouts
            .insert(path.to_owned(), Cached { stamp, images });
        Ok(())
    }
}

fn images_of(layout: &Layout) -> Result<Vec<(String, Descriptor)>, LayoutError> {
    let mut images = Vec::new();
    for descriptor in layout.index()?.manifests {
        let Some(name) = descriptor.annotations.get(REF_NAME) else {
            tracing::debug!(layout = %layout.path().display(), "image without a name is ignored");
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

/// The directory if it is a layout itself, otherwise its entries.
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
        // Builders give unfinished layouts a name with a leading dot.
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
