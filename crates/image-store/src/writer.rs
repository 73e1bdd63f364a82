//! Writes layouts reproducibly.
//!
//! Entries are sorted, all times are a given number, and nothing depends on the building host. A
//! layout is built next to its final path and exchanged with the old one at the end, so a reader
//! gets the old or the new image.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::StoreError;
use crate::manifest::{
    CONFIG_TYPE, Descriptor, INDEX_TYPE, Index, MANIFEST_TYPE, Manifest, REF_NAME, architecture,
};

/// Numeric owner of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// uid 0 and gid 0.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

/// One file, directory or link of a layer.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Without a leading slash.
    pub path: String,
    pub mode: u32,
    pub owner: Owner,
    pub content: Content,
}

/// The type and content of an entry.
#[derive(Debug, Clone)]
pub enum Content {
    Directory,
    Bytes(Vec<u8>),
    /// Copied from this file when the layer is written.
    File(PathBuf),
    Symlink(String),
    /// To an earlier entry of the same layer, or one of a lower layer.
    HardLink(String),
}

/// The compression of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Plain,
    Gzip,
    /// With zstd's level.
    Zstd(i32),
}

/// A written layer, as described in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub digest: Digest,
    /// The digest before compression.
    pub diff_id: Digest,
    pub size: u64,
    pub media_type: String,
}

/// Writes one layer to the file `out`. All entries get the time `mtime`.
pub fn write_layer(
    out: &Path,
    mut entries: Vec<Entry>,
    compression: Compression,
    mtime: u64,
) -> Result<Layer, StoreError> {
    // By component, as in a directory walk: a directory comes before its entries, and a hard link
    // after its target.
    entries.sort_by(|left, right| Path::new(&left.path).cmp(Path::new(&right.path)));
    let failed = |source| StoreError::io("write layer", out, source);
    let file = File::create(out).map_err(failed)?;
    pack(file, &entries, compression, mtime).map_err(failed)
}

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

impl Entry {
    /// The contents of a directory with its owners, modes and hard links, without sockets and device
    /// nodes.
    pub fn from_directory(directory: &Path) -> Result<Vec<Self>, StoreError> {
        let mut entries = Vec::new();
        let mut linked = BTreeMap::new();
        collect(directory, "", &mut linked, &mut entries)?;
        Ok(entries)
    }
}

impl Layer {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            media_type: self.media_type.clone(),
            digest: self.digest.clone(),
            size: self.size,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }
}

impl Compression {
    fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd(_) => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

fn collect(
    directory: &Path,
    prefix: &str,
    linked: &mut BTreeMap<(u64, u64), String>,
    entries: &mut Vec<Entry>,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::io("read", directory, source);
    let mut children: Vec<_> = fs::read_dir(directory)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(failed)?
        .into_iter()
        .map(|entry| entry.file_name())
        .collect();
    // The first of several hard links in this order has the content.
    children.sort();
    for child in children {
        let path = directory.join(&child);
        let name = child.into_string().map_err(|_| {
            failed(io::Error::new(
                io::ErrorKind::InvalidData,
                "a name is not UTF-8",
            ))
        })?;
        let name = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}/{name}")
        };
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            Content::Directory
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(failed)?;
            Content::Symlink(target.to_string_lossy().into_owned())
        } else if kind.is_file() && metadata.nlink() > 1 {
            let first = linked
                .entry((metadata.dev(), metadata.ino()))
                .or_insert(name.clone());
            if *first == name {
                Content::File(path.clone())
            } else {
                Content::HardLink(first.clone())
            }
        } else if kind.is_file() {
            Content::File(path.clone())
        } else {
            continue;
        };
        entries.push(Entry {
            path: name.clone(),
            mode: metadata.permissions().mode() & 0o7777,
            owner: Owner {
                uid: metadata.uid(),
                gid: metadata.gid(),
            },
            content,
        });
        if kind.is_dir() {
            collect(&path, &name, linked, entries)?;
        }
    }
    Ok(())
}

fn pack(file: File, entries: &[Entry], compression: Compression, mtime: u64) -> io::Result<Layer> {
    let out = Hashing::new(BufWriter::new(file));
    let (packed, diff_id) = match compression {
        Compression::Plain => archive(out, entries, mtime)?,
        Compression::Gzip => {
            let encoder = flate2::GzBuilder::new().write(out, flate2::Compression::new(6));
            let (encoder, diff_id) = archive(encoder, entries, mtime)?;
            (encoder.finish()?, diff_id)
        }
        Compression::Zstd(level) => {
            let (encoder, diff_id) = archive(zstd::Encoder::new(out, level)?, entries, mtime)?;
            (encoder.finish()?, diff_id)
        }
    };
    let Hashing {
        mut inner,
        hasher,
        length,
    } = packed;
    inner.flush()?;
    Ok(Layer {
        digest: Digest::finish(hasher),
        diff_id,
        size: length,
        media_type: compression.media_type().to_owned(),
    })
}

/// Writes the tar stream. Returns the writer and the digest of the stream.
fn archive<W: Write>(out: W, entries: &[Entry], mtime: u64) -> io::Result<(W, Digest)> {
    let mut builder = tar::Builder::new(Hashing::new(out));
    for entry in entries {
        append(&mut builder, entry, mtime)?;
    }
    let Hashing { inner, hasher, .. } = builder.into_inner()?;
    Ok((inner, Digest::finish(hasher)))
}

fn append<W: Write>(builder: &mut tar::Builder<W>, entry: &Entry, mtime: u64) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(entry.owner.uid.into());
    header.set_gid(entry.owner.gid.into());
    header.set_mtime(mtime);
    header.set_size(0);
    let path = &entry.path;
    match &entry.content {
        Content::Directory => {
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, format!("{path}/"), io::empty())
        }
        Content::Bytes(bytes) => {
            header.set_size(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            builder.append_data(&mut header, path, bytes.as_slice())
        }
        Content::File(source) => {
            let file = File::open(source)?;
            header.set_size(file.metadata()?.len());
            builder.append_data(&mut header, path, file)
        }
        Content::Symlink(target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            builder.append_link(&mut header, path, target)
        }
        Content::HardLink(target) => {
            header.set_entry_type(tar::EntryType::Link);
            builder.append_link(&mut header, path, target)
        }
    }
}

/// A writer that hashes and counts the bytes written.
struct Hashing<W> {
    inner: W,
    hasher: Sha256,
    length: u64,
}

impl<W> Hashing<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            length: 0,
        }
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hasher
            .update(buffer.get(..written).unwrap_or_default());
        self.length += u64::try_from(written).unwrap_or(u64::MAX);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
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

/// Seconds since 1970 as RFC 3339 in UTC.
fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days: years are counted from March, so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::timestamp;

    #[test]
    fn timestamps_follow_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(timestamp(seconds), expected);
        }
    }
}
