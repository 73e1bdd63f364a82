//! Unpacks, loads and removes the trees of images.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD};
use serde::{Deserialize, Serialize};

use super::{Image, Inner, store_failed};
use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::{ImageError, StoreError, UnpackError};
use crate::manifest::{Descriptor, Manifest};
use crate::tree::Tree;
use crate::unpack::{LayerBlob, Unpacker};

/// The content of `image.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Marker {
    pub(super) digest: Digest,
    pub(super) config: ImageConfig,
}

/// Opens the bytes of a layer.
pub(super) type OpenLayer<'o, R> = &'o dyn Fn(&Descriptor) -> Result<R, UnpackError>;

/// The layers of an image to unpack.
pub(super) struct Source<'s, R> {
    pub(super) manifest: &'s Manifest,
    pub(super) marker: Marker,
    pub(super) open: OpenLayer<'s, R>,
}

/// A directory for work in progress, removed when dropped.
pub(super) struct Draft {
    path: PathBuf,
}

impl Draft {
    pub(super) fn blob(&self, digest: &Digest) -> PathBuf {
        self.path.join(digest.hex())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "unfinished work cannot be removed");
        }
    }
}

/// The marker of a complete tree.
const MARKER: &str = "image.json";

/// An image that nothing uses. The order is that of removal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unused {
    last_used: Option<SystemTime>,
    digest: Digest,
    tree: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    Removed,
    InUse,
}

impl Inner {
    /// Builds a tree in a draft directory and renames it to its final path.
    pub(super) fn unpack<R: Read>(
        &self,
        name: &str,
        draft: &Draft,
        source: Source<'_, R>,
    ) -> Result<Image, ImageError> {
        let Source {
            manifest,
            marker,
            open,
        } = source;
        let failed = |source: UnpackError| ImageError::Unpack {
            reference: name.to_owned(),
            source: Arc::new(source),
        };
        let started = std::time::Instant::now();
        let dir = draft.path.join("tree");
        let io_failed =
            |action, path: &Path, source| store_failed(name, StoreError::io(action, path, source));
        fs::create_dir(&dir).map_err(|source| io_failed("make", &dir, source))?;
        let tree =
            Tree::create(&dir.join("rootfs")).map_err(|source| io_failed("make", &dir, source))?;
        let mut unpacker = Unpacker::new(&tree, self.limits);
        for layer in &manifest.layers {
            let blob = LayerBlob {
                media_type: layer.media_type.clone(),
                digest: layer.digest.clone(),
                size: layer.size,
                reader: open(layer).map_err(failed)?,
            };
            unpacker.apply(blob).map_err(failed)?;
        }
        let path = dir.join(MARKER);
        let bytes = serde_json::to_vec_pretty(&marker).map_err(|source| {
            store_failed(
                name,
                StoreError::Parse {
                    path: path.clone(),
                    source,
                },
            )
        })?;
        durable_file::replace(&path, &bytes, 0o644)
            .map_err(|source| io_failed("write", &path, source))?;
        tree.sync()
            .map_err(|source| io_failed("flush", &dir, source))?;
        self.mark_used(&marker.digest);
        let path = self.tree_path(&marker.digest);
        match fs::rename(&dir, &path) {
            // A concurrent pull unpacked the same image under another reference.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(source) => return Err(io_failed("rename to", &path, source)),
            Ok(()) => {
                let trees = self.root.join("trees");
                durable_file::sync_directory(&trees)
                    .map_err(|source| io_failed("flush", &trees, source))?;
            }
        }
        tracing::info!(image = name, digest = %marker.digest, took = ?started.elapsed(), "unpacked image");
        Ok(Image {
            digest: marker.digest,
            root: path.join("rootfs"),
            config: marker.config,
        })
    }

    pub(super) fn load(&self, digest: &Digest) -> Result<Option<Image>, StoreError> {
        // Before the tree is looked for, so that a collection does not remove it meanwhile.
        self.mark_used(digest);
        let tree = self.tree_path(digest);
        let path = tree.join(MARKER);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StoreError::io("read", path, source)),
        };
        // On a disk that cannot be written, nothing is collected either.
        if let Err(error) = touch(&path) {
            tracing::debug!(path = %path.display(), %error, "last use of an image is not recorded");
        }
        let marker: Marker =
            serde_json::from_slice(&bytes).map_err(|source| StoreError::Parse { path, source })?;
        let root = tree.join("rootfs");
        Ok(Some(Image {
            digest: marker.digest,
            root,
            config: marker.config,
        }))
    }

    /// The image is not removed by the next collection.
    pub(super) fn mark_used(&self, digest: &Digest) {
        self.recently_used.lock().insert(digest.clone());
    }

    pub(super) fn collect(
        &self,
        keep: &BTreeSet<Digest>,
        since: Option<SystemTime>,
        mut is_enough: impl FnMut() -> bool,
    ) -> Result<Vec<Digest>, StoreError> {
        let mut removed = Vec::new();
        let mut outcome = Ok(());
        for unused in self.unused(keep, since)? {
            if is_enough() {
                break;
            }
            match self.remove_unused(&unused) {
                Ok(Removal::Removed) => removed.push(unused.digest),
                Ok(Removal::InUse) => {}
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.references.lock().remove(&removed)?;
        let mut resolved = self.resolved.lock();
        resolved.retain(|_, digest| !removed.contains(digest));
        outcome.map(|()| removed)
    }

    /// The trees besides those to keep and those used `since`, the longest unused first.
    fn unused(
        &self,
        keep: &BTreeSet<Digest>,
        since: Option<SystemTime>,
    ) -> Result<Vec<Unused>, StoreError> {
        let trees = self.root.join("trees");
        let failed = |source| StoreError::io("list", &trees, source);
        let mut unused = Vec::new();
        for entry in fs::read_dir(&trees).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let digest = name
                .to_str()
                .and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok());
            let Some(digest) = digest.filter(|digest| !keep.contains(digest)) else {
                continue;
            };
            let tree = entry.path();
            // A tree without a marker is of no use, so it goes first.
            let marker = fs::metadata(tree.join(MARKER));
            let last_used = marker.and_then(|marker| marker.modified()).ok();
            if last_used.is_some_and(|time| since.is_some_and(|since| time >= since)) {
                continue;
            }
            unused.push(Unused {
                last_used,
                digest,
                tree,
            });
        }
        unused.sort();
        Ok(unused)
    }

    /// Removes a tree, unless it was used meanwhile.
    fn remove_unused(&self, unused: &Unused) -> Result<Removal, StoreError> {
        // Held while the tree is renamed: a user marks an image before it looks for the tree.
        let recently_used = self.recently_used.lock();
        if recently_used.contains(&unused.digest) {
            return Ok(Removal::InUse);
        }
        // Renamed first, so that an interrupted removal leaves no partial tree. No directory is made for it: on a
        // full disk that would fail.
        let draft = self.next_draft();
        fs::rename(&unused.tree, &draft.path)
            .map_err(|source| StoreError::io("rename", &unused.tree, source))?;
        drop(recently_used);
        drop(draft);
        tracing::info!(digest = %unused.digest, "unused image is removed");
        Ok(Removal::Removed)
    }

    fn tree_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("trees").join(digest.hex())
    }

    pub(super) fn draft(&self) -> Result<Draft, StoreError> {
        let draft = self.next_draft();
        fs::create_dir(&draft.path)
            .map_err(|source| StoreError::io("make", draft.path.clone(), source))?;
        Ok(draft)
    }

    /// A draft directory that does not exist yet.
    fn next_draft(&self) -> Draft {
        let number = self.drafts.fetch_add(1, Ordering::Relaxed);
        Draft {
            path: self.root.join("tmp").join(number.to_string()),
        }
    }
}

/// Sets the file's time to now.
fn touch(path: &Path) -> io::Result<()> {
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let times = rustix::fs::Timestamps {
        last_access: now,
        last_modification: now,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?;
    Ok(())
}
