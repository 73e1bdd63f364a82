//! Writes layouts reproducibly.
//!
//! Entries are sorted, all times are a given number, and nothing depends on the building host. A
//! layout is built next to its final path and exchanged with the old one at the end, so a reader
//! gets the old or the new image.
//!
//! [`entry`] describes the contents of a layer, [`layer`] writes it as a compressed tar stream.

mod entry;
mod layer;
mod timestamp;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use serde::Serialize;

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::StoreError;
use crate::manifest::{
    CONFIG_TYPE, Descriptor, INDEX_TYPE, Index, MANIFEST_TYPE, Manifest, REF_NAME, architecture,
};

pub use entry::{Content, Entry, Owner};
pub use layer::{Compression, Layer, write_layer};
use timestamp::timestamp;

/// A layout under construction.
#[derive(Debug)]
pub struct LayoutWriter {
    path: PathBuf,
    draft: PathBuf,
    mtime: u64,
    layers: Vec<Layer>,
}

impl LayoutWriter {
    /// Starts a layout that replaces the one at `path` when finished. `mtime`, in seconds, is the
    /// time of every file in it.
    pub fn create(path: impl Into<PathBuf>, mtime: u64) -> Result<Self, StoreError> {
        let path = path.into();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
        remove_if_exists(&draft)?;
        let blobs = draft.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(|source| StoreError::io("make", blobs, source))?;
        Ok(Self {
            path,
            draft,
            mtime,
            layers: Vec::new(),
        })
    }

    /// Adds a layer of these entries on top of the others.
    pub fn add_entries(
        &mut self,
        entries: Vec<Entry>,
        compression: Compression,
    ) -> Result<Layer, StoreError> {
        let out = self.draft.join("layer");
        let layer = write_layer(&out, entries, compression, self.mtime)?;
        let blob = self.blob(&layer.digest);
        fs::rename(&out, &blob).map_err(|source| StoreError::io("rename to", blob, source))?;
        self.layers.push(layer.clone());
        Ok(layer)
    }

    /// Adds a layer made by [`write_layer`] on top of the others.
    pub fn add_layer(&mut self, blob: &Path, layer: Layer) -> Result<(), StoreError> {
        let target = self.blob(&layer.digest);
        // Hard links save space; across file systems the file is copied.
        if !target.exists() && fs::hard_link(blob, &target).is_err() {
            fs::copy(blob, &target).map_err(|source| StoreError::io("copy", blob, source))?;
        }
        self.layers.push(layer);
        Ok(())
    }

    /// Writes configuration, manifest and index, and moves the layout to its final path. Returns the
    /// manifest's digest.
    pub fn finish(self, reference: &str, config: &ImageConfig) -> Result<Digest, StoreError> {
        let layers: Vec<Descriptor> = self.layers.iter().map(Layer::descriptor).collect();
        let document = serde_json::json!({
            "created": timestamp(self.mtime),
            "architecture": architecture(),
            "os": "linux",
            "config": config,
            "rootfs": {
                "type": "layers",
                "diff_ids": self.layers.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>(),
            },
        });
        let config = self.write_document(CONFIG_TYPE, &document)?;
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE.to_owned(),
            config,
            layers,
        };
        let mut manifest = self.write_document(MANIFEST_TYPE, &manifest)?;
        let digest = manifest.digest.clone();
        manifest.annotations = BTreeMap::from([(REF_NAME.to_owned(), reference.to_owned())]);
        let index = Index {
            schema_version: 2,
            media_type: INDEX_TYPE.to_owned(),
            manifests: vec![manifest],
        };
        self.write_file("index.json", &self.json(&index)?)?;
        self.write_file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        self.move_to_path()?;
        Ok(digest)
    }

    fn move_to_path(&self) -> Result<(), StoreError> {
        let failed = |source: rustix::io::Errno| {
            StoreError::io("rename to", &self.path, io::Error::from(source))
        };
        if self.path.exists() {
            rustix::fs::renameat_with(CWD, &self.draft, CWD, &self.path, RenameFlags::EXCHANGE)
                .map_err(failed)?;
            remove_if_exists(&self.draft)
        } else {
            rustix::fs::rename(&self.draft, &self.path).map_err(failed)
        }
    }

    fn write_document(
        &self,
        media_type: &str,
        document: &impl Serialize,
    ) -> Result<Descriptor, StoreError> {
        let bytes = self.json(document)?;
        let digest = Digest::of(&bytes);
        self.write_file(&format!("blobs/sha256/{}", digest.hex()), &bytes)?;
        Ok(Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            platform: None,
            annotations: BTreeMap::new(),
        })
    }

    fn json(&self, document: &impl Serialize) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec(document).map_err(|source| StoreError::Parse {
            path: self.draft.clone(),
            source,
        })
    }

    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.draft.join(name);
        fs::write(&path, bytes).map_err(|source| StoreError::io("write", path, source))
    }

    fn blob(&self, digest: &Digest) -> PathBuf {
        self.draft.join("blobs/sha256").join(digest.hex())
    }
}

impl Drop for LayoutWriter {
    fn drop(&mut self) {
        if let Err(error) = remove_if_exists(&self.draft) {
            tracing::warn!(%error, "unfinished layout cannot be removed");
        }
    }
}

fn remove_if_exists(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path, error))
        }
        _ => Ok(()),
    }
}
