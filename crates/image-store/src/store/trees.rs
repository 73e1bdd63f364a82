//! Unpacks, loads and removes the trees of images.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "unfinished work cannot be removed");
        }
    }
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
        let path = dir.join("image.json");
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
        let tree = self.tree_path(digest);
        let path = tree.join("image.json");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StoreError::io("read", path, source)),
        };
        let marker: Marker =
            serde_json::from_slice(&bytes).map_err(|source| StoreError::Parse { path, source })?;
        let root = tree.join("rootfs");
        Ok(Some(Image {
            digest: marker.digest,
            root,
            config: marker.config,
        }))
    }

    pub(super) fn collect(&self, keep: &BTreeSet<Digest>) -> Result<Vec<Digest>, StoreError> {
        let trees = self.root.join("trees");
        let failed = |source| StoreError::io("list", &trees, source);
        let mut removed = Vec::new();
        for entry in fs::read_dir(&trees).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(digest) = name
                .to_str()
                .and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok())
            else {
                continue;
            };
            if keep.contains(&digest) || self.recently_used.lock().contains(&digest) {
                continue;
            }
            // Rename first, so that an interrupted removal leaves no partial tree.
            let draft = self.draft()?;
            let removed_tree = draft.path.join("tree");
            fs::rename(entry.path(), &removed_tree)
                .map_err(|source| StoreError::io("rename", entry.path(), source))?;
            removed.push(digest);
        }
        self.references.lock().remove(&removed)?;
        Ok(removed)
    }

    fn tree_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("trees").join(digest.hex())
    }

    pub(super) fn draft(&self) -> Result<Draft, StoreError> {
        let number = self.drafts.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join("tmp").join(number.to_string());
        fs::create_dir(&path).map_err(|source| StoreError::io("make", path.clone(), source))?;
        Ok(Draft { path })
    }
}
