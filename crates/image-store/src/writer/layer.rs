//! Writes a layer as a compressed tar stream.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::entry::{Content, Entry};
use crate::digest::Digest;
use crate::error::StoreError;
use crate::manifest::Descriptor;

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
    // By component, as in a directory walk: a directory comes before its entries. Hard links come last,
    // after their targets.
    let place = |entry: &Entry| matches!(entry.content, Content::HardLink(_));
    entries.sort_by(|left, right| {
        let paths = || Path::new(&left.path).cmp(Path::new(&right.path));
        place(left).cmp(&place(right)).then_with(paths)
    });
    let failed = |source| StoreError::io("write layer", out, source);
    let file = File::create(out).map_err(failed)?;
    pack(file, &entries, compression, mtime).map_err(failed)
}

impl Layer {
    pub(super) fn descriptor(&self) -> Descriptor {
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
