//! Unpacks layers into one tree, lowest first.
//!
//! Whiteouts remove entries of lower layers, never of their own layer, in any order of the entries.
//! Device nodes are skipped: the runtime provides `/dev`, and a tree that is mounted as a volume
//! should have none. Only file capabilities and `user.*` extended attributes are set, as
//! `trusted.*` could manipulate the overlay file system mounted over the tree.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tar::{Archive, EntryType};

use crate::digest::Digest;
use crate::error::UnpackError;
use crate::tree::{Attributes, Tree, TreePath};
use crate::verified::VerifiedReader;

/// The maximum size of an unpacked image.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of all layers after decompression.
    pub bytes: u64,
    /// Files, directories and links of all layers.
    pub entries: u64,
}

impl Limits {
    /// Enough for large disk images, but too small for a compression bomb that fills the host's
    /// memory with inodes.
    pub const DEFAULT: Self = Self {
        bytes: 256 << 30,
        entries: 2_000_000,
    };
}

/// Bytes between the contents of two entries: headers, long names, extended attributes.
const MAX_HEADERS: u64 = 2 << 20;
const BLOCK: usize = 64 << 10;

/// A layer's compressed bytes and their expected digest.
pub(crate) struct LayerBlob<R> {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) reader: R,
}

/// Applies layers to a tree within limits.
pub(crate) struct Unpacker<'t> {
    tree: &'t Tree,
    bytes_left: u64,
    entries_left: u64,
    limits: Limits,
}

/// The entries unpacked from the current layer.
#[derive(Default)]
struct LayerState {
    paths: BTreeSet<TreePath>,
    directories: Vec<(TreePath, i64)>,
}

impl<'t> Unpacker<'t> {
    pub(crate) fn new(tree: &'t Tree, limits: Limits) -> Self {
        Self {
            tree,
            bytes_left: limits.bytes,
            entries_left: limits.entries,
            limits,
        }
    }

    /// Unpacks one layer over those before.
    pub(crate) fn apply<R: Read>(&mut self, layer: LayerBlob<R>) -> Result<(), UnpackError> {
        if !layer.media_type.contains("tar") || layer.media_type.contains("encrypted") {
            return Err(UnpackError::MediaType(layer.media_type));
        }
        let mut verified = VerifiedReader::new(layer.reader, layer.size);
        let applied = self.apply_compressed(&mut verified);
        // A damaged blob can fail in many ways; report the digest mismatch as the cause.
        if !verified.finish(&layer.digest).map_err(UnpackError::Read)? {
            return Err(UnpackError::Corrupt {
                digest: layer.digest,
            });
        }
        applied
    }

    fn apply_compressed(&mut self, blob: impl Read) -> Result<(), UnpackError> {
        let mut blob = BufReader::with_capacity(BLOCK, blob);
        let magic = blob.fill_buf().map_err(UnpackError::Read)?;
        if magic.starts_with(&[0x1f, 0x8b]) {
            self.apply_tar(flate2::bufread::MultiGzDecoder::new(blob))
        } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            self.apply_tar(zstd::Decoder::with_buffer(blob).map_err(UnpackError::Read)?)
        } else {
            self.apply_tar(blob)
        }
    }

    fn apply_tar(&mut self, stream: impl Read) -> Result<(), UnpackError> {
        let total = Cell::new(self.bytes_left);
        let headers = Cell::new(Some(MAX_HEADERS));
        let mut archive = Archive::new(Metered {
            stream,
            total: &total,
            headers: &headers,
        });
        let mut state = LayerState::default();
        let too_large = |error: io::Error| match error.kind() {
            io::ErrorKind::FileTooLarge => UnpackError::TooLarge {
                what: "bytes",
                limit: self.limits.bytes,
            },
            _ => UnpackError::Read(error),
        };
        let mut entries_left = self.entries_left;
        for entry in archive.entries().map_err(too_large)? {
            let mut entry = entry.map_err(too_large)?;
            headers.set(None);
            entries_left = entries_left.checked_sub(1).ok_or(UnpackError::TooLarge {
                what: "entries",
                limit: self.limits.entries,
            })?;
            state
                .apply(self.tree, &mut entry)
                .map_err(|error| match error {
                    UnpackError::Write { source, .. } | UnpackError::Read(source)
                        if source.kind() == io::ErrorKind::FileTooLarge && total.get() == 0 =>
                    {
                        too_large(source)
                    }
                    other => other,
                })?;
            // Skip unread content, so that the next read sees only headers.
            io::copy(&mut entry, &mut io::sink()).map_err(too_large)?;
            headers.set(Some(MAX_HEADERS));
        }
        for (path, mtime) in state.directories.iter().rev() {
            self.tree
                .stamp_directory(path, *mtime)
                .map_err(|source| write_failed(path, source))?;
        }
        self.bytes_left = total.get();
        self.entries_left = entries_left;
        Ok(())
    }
}

impl LayerState {
    fn apply<R: Read>(
        &mut self,
        tree: &Tree,
        entry: &mut tar::Entry<'_, R>,
    ) -> Result<(), UnpackError> {
        let raw = entry.path_bytes().into_owned();
        let refuse = |message| UnpackError::BadEntry {
            path: String::from_utf8_lossy(&raw).into_owned(),
            message,
        };
        let path = TreePath::parse(Path::new(OsStr::from_bytes(&raw)))
            .ok_or_else(|| refuse("the path has a \"..\" in it"))?;
        if self.apply_whiteout(tree, &path)? {
            return Ok(());
        }
        let attributes =
            attributes_of(entry).ok_or_else(|| refuse("owner, mode or time is out of range"))?;
        let link = entry.link_name_bytes().map(std::borrow::Cow::into_owned);
        let link = || match &link {
            Some(link) if !link.is_empty() => Ok(Path::new(OsStr::from_bytes(link))),
            _ => Err(refuse("the link has no target")),
        };
        let done = match entry.header().entry_type() {
            EntryType::Directory => {
                self.directories.push((path.clone(), attributes.mtime));
                tree.make_directory(&path, attributes)
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let extended = extended_attributes(entry).map_err(UnpackError::Read)?;
                let metadata = FileMetadata {
                    attributes,
                    extended: &extended,
                };
                write_file(tree, &path, entry, metadata)
            }
            EntryType::Symlink => tree.make_symlink(&path, link()?, attributes),
            EntryType::Link => {
                let target = TreePath::parse(link()?)
                    .ok_or_else(|| refuse("the hard link's target has a \"..\" in it"))?;
                tree.make_hard_link(&path, &target)
            }
            EntryType::Fifo => tree.make_fifo(&path, attributes),
            EntryType::Char | EntryType::Block | EntryType::XGlobalHeader => return Ok(()),
            _ => return Err(refuse("the type of this entry is not supported")),
        };
        done.map_err(|source| write_failed(&path, source))?;
        self.paths.insert(path);
        Ok(())
    }

    /// Applies a whiteout. Returns whether the entry was one.
    fn apply_whiteout(&self, tree: &Tree, path: &TreePath) -> Result<bool, UnpackError> {
        let Some((parent, name)) = path.split() else {
            return Ok(false);
        };
        let Some(hidden) = name.as_bytes().strip_prefix(b".wh.") else {
            return Ok(false);
        };
        let hidden = OsStr::from_bytes(hidden);
        if hidden == ".wh..opq" {
            for name in tree
                .names(&parent)
                .map_err(|source| write_failed(path, source))?
            {
                self.hide(tree, &parent.join(&name))?;
            }
        } else if !hidden.as_bytes().starts_with(b".wh.") && hidden != "." && hidden != ".." {
            self.hide(tree, &parent.join(hidden))?;
        }
        Ok(true)
    }

    /// Removes the entries of lower layers at `path`, but none of this layer.
    fn hide(&self, tree: &Tree, path: &TreePath) -> Result<(), UnpackError> {
        // Paths sort by component, so entries below `path` follow it directly.
        let own = self.paths.range(path..).next();
        if !own.is_some_and(|own| own.starts_with(path)) {
            return tree
                .remove(path)
                .map_err(|source| write_failed(path, source));
        }
        for name in tree
            .names(path)
            .map_err(|source| write_failed(path, source))?
        {
            self.hide(tree, &path.join(&name))?;
        }
        Ok(())
    }
}

/// A stream that fails when it exceeds its limits.
struct Metered<'c, R> {
    stream: R,
    total: &'c Cell<u64>,
    /// Bytes left before the next entry; `None` while an entry's content is read.
    headers: &'c Cell<Option<u64>>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = self.headers.get().unwrap_or(u64::MAX).min(self.total.get());
        let wanted = usize::try_from(allowed)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if wanted == 0 && !buffer.is_empty() {
            // The limit is exceeded only if there is more data.
            return match self.stream.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::ErrorKind::FileTooLarge.into()),
            };
        }
        let Some(window) = buffer.get_mut(..wanted) else {
            return Ok(0);
        };
        let count = self.stream.read(window)?;
        let read = u64::try_from(count).unwrap_or(u64::MAX);
        self.total.set(self.total.get().saturating_sub(read));
        self.headers
            .set(self.headers.get().map(|left| left.saturating_sub(read)));
        Ok(count)
    }
}

fn attributes_of<R: Read>(entry: &tar::Entry<'_, R>) -> Option<Attributes> {
    // The kernel interprets the highest number as "do not change".
    let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
    let header = entry.header();
    Some(Attributes {
        uid: id(header.uid().ok()?)?,
        gid: id(header.gid().ok()?)?,
        mode: header.mode().ok()?,
        mtime: i64::try_from(header.mtime().ok()?).ok()?,
    })
}

fn extended_attributes<R: Read>(
    entry: &mut tar::Entry<'_, R>,
) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let Some(extensions) = entry.pax_extensions()? else {
        return Ok(found);
    };
    for extension in extensions {
        let extension = extension?;
        let name = extension
            .key()
            .ok()
            .and_then(|key| key.strip_prefix("SCHILY.xattr."));
        if let Some(name) = name.filter(|n| *n == "security.capability" || n.starts_with("user.")) {
            found.push((name.to_owned(), extension.value_bytes().to_vec()));
        }
    }
    Ok(found)
}

#[derive(Clone, Copy)]
struct FileMetadata<'m> {
    attributes: Attributes,
    /// Extended attributes.
    extended: &'m [(String, Vec<u8>)],
}

fn write_file(
    tree: &Tree,
    path: &TreePath,
    content: &mut impl Read,
    metadata: FileMetadata<'_>,
) -> io::Result<()> {
    let mut file = tree.create_file(path)?;
    copy_sparse(content, &mut file)?;
    Tree::finish_file(&file, metadata.attributes, metadata.extended)
}

/// Copies, leaving holes for blocks of zeros, which are frequent in disk images.
fn copy_sparse(from: &mut impl Read, to: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK];
    let mut length = 0_u64;
    loop {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match from.read(rest)? {
                0 => break,
                read => filled += read,
            }
        }
        let block = buffer.get(..filled).unwrap_or_default();
        length += u64::try_from(filled).unwrap_or(u64::MAX);
        if filled == BLOCK && block.iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Start(length))?;
        } else {
            to.write_all(block)?;
        }
        if filled < BLOCK {
            return to.set_len(length);
        }
    }
}

fn write_failed(path: &TreePath, source: io::Error) -> UnpackError {
    UnpackError::Write {
        path: path.to_string(),
        source,
    }
}
