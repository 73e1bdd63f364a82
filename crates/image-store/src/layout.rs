//! Reads an OCI layout: a directory, or the same directory as a tar archive.
//!
//! An archive is never unpacked: its members are indexed once and blobs are read in place. Blobs
//! and documents are not cached.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::error::LayoutError;
use crate::manifest::{Descriptor, Index, MAX_DOCUMENT};
use crate::verified::VerifiedReader;

/// Archives with more members are refused.
const MAX_MEMBERS: usize = 10_000;

/// Contains `index.json` and `blobs/`.
#[derive(Debug)]
pub(crate) enum Layout {
    Directory(PathBuf),
    Archive {
        path: PathBuf,
        members: BTreeMap<PathBuf, Member>,
    },
}

/// Location of a file in an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    offset: u64,
    size: u64,
}

impl Layout {
    /// Opens `path`; `None` if it is not a layout, as other files may be beside layouts.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, LayoutError> {
        if path.is_dir() {
            let marked = path.join("oci-layout").is_file() && path.join("index.json").is_file();
            return Ok(marked.then(|| Self::Directory(path.to_owned())));
        }
        if path.extension().is_none_or(|extension| extension != "tar") {
            return Ok(None);
        }
        let members = members_of(path)?;
        if !members.contains_key(Path::new("index.json")) {
            return Err(LayoutError::NotALayout {
                path: path.to_owned(),
                message: "the archive has no index.json".to_owned(),
            });
        }
        Ok(Some(Self::Archive {
            path: path.to_owned(),
            members,
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Archive { path, .. } => path,
        }
    }

    /// The list of images.
    pub(crate) fn index(&self) -> Result<Index, LayoutError> {
        let too_large = || LayoutError::TooLarge {
            path: self.path().to_owned(),
            what: "index.json",
            limit: MAX_DOCUMENT,
        };
        let mut bytes = Vec::new();
        self.open_member(Path::new("index.json"))
            .and_then(|file| file.take(MAX_DOCUMENT + 1).read_to_end(&mut bytes))
            .map_err(|source| self.unreadable(source))?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_DOCUMENT) {
            return Err(too_large());
        }
        serde_json::from_slice(&bytes).map_err(|source| LayoutError::Parse {
            path: self.path().to_owned(),
            what: "index.json",
            source,
        })
    }

    /// Reads and verifies a small blob.
    pub(crate) fn document(
        &self,
        descriptor: &Descriptor,
        what: &'static str,
    ) -> Result<Vec<u8>, LayoutError> {
        if descriptor.size > MAX_DOCUMENT {
            let path = self.path().to_owned();
            return Err(LayoutError::TooLarge {
                path,
                what,
                limit: MAX_DOCUMENT,
            });
        }
        let mut reader = VerifiedReader::new(self.blob(&descriptor.digest)?, descriptor.size);
        let mut bytes = Vec::new();
        reader
            .read_to_end(&mut bytes)
            .map_err(|source| self.unreadable(source))?;
        match reader.finish(&descriptor.digest) {
            Ok(true) => Ok(bytes),
            Ok(false) => Err(LayoutError::Corrupt {
                path: self.path().to_owned(),
                digest: descriptor.digest.clone(),
            }),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    /// Opens a blob without verifying it.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + Send>, LayoutError> {
        let name = Path::new("blobs/sha256").join(digest.hex());
        self.open_member(&name)
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => LayoutError::MissingBlob {
                    path: self.path().to_owned(),
                    digest: digest.clone(),
                },
                _ => self.unreadable(source),
            })
    }

    fn open_member(&self, name: &Path) -> io::Result<Box<dyn Read + Send>> {
        match self {
            Self::Directory(path) => Ok(Box::new(File::open(path.join(name))?)),
            Self::Archive { path, members } => {
                let member = members.get(name).ok_or(io::ErrorKind::NotFound)?;
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(member.offset))?;
                Ok(Box::new(file.take(member.size)))
            }
        }
    }

    fn unreadable(&self, source: io::Error) -> LayoutError {
        LayoutError::Read {
            path: self.path().to_owned(),
            source,
        }
    }
}

fn members_of(path: &Path) -> Result<BTreeMap<PathBuf, Member>, LayoutError> {
    let unreadable = |source| LayoutError::Read {
        path: path.to_owned(),
        source,
    };
    let mut archive = tar::Archive::new(File::open(path).map_err(unreadable)?);
    let mut members = BTreeMap::new();
    for entry in archive.entries_with_seek().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        if members.len() == MAX_MEMBERS {
            return Err(LayoutError::NotALayout {
                path: path.to_owned(),
                message: format!("the archive has more than {MAX_MEMBERS} members"),
            });
        }
        let name = entry.path().map_err(unreadable)?;
        let name = name.strip_prefix(".").unwrap_or(&name).to_owned();
        members.insert(
            name,
            Member {
                offset: entry.raw_file_position(),
                size: entry.size(),
            },
        );
    }
    Ok(members)
}
