//! The entries of a layer.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

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
