//! The bytes of a new, empty qcow2 image.
//!
//! Layout, one cluster of 64 KiB each unless the L1 table is longer: header with its extensions and
//! the backing file's name; refcount table; its first block; L1 table, all zero. Nothing else exists
//! until a guest writes.

use crate::Format;
use crate::probe::{EXTENSION_BACKING_FORMAT, MAGIC, MAX_BACKING_NAME, SECTOR, V3_HEADER};

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// An L2 table of one cluster maps 8192 clusters of data.
const BYTES_PER_L1_ENTRY: u64 = CLUSTER * (CLUSTER / 8);
/// Refcounts are 16 bits wide (`1 << 4`).
const REFCOUNT_ORDER: u32 = 4;
/// The longest L1 table that QEMU accepts: 32 MiB of entries.
const MAX_L1_ENTRIES: u64 = (32 << 20) / 8;

/// The backing file of an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingFile {
    /// As QEMU opens it: absolute, or relative to the overlay's directory.
    pub path: String,
    pub format: Format,
}

/// A new image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blueprint {
    virtual_size: u64,
    backing_file: Option<BackingFile>,
}

/// Why an image cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlueprintError {
    #[error("a disk of {0} bytes: the size must be between 1 byte and 2 PiB")]
    Size(u64),
    #[error("the backing file's name must have 1 to {MAX_BACKING_NAME} bytes, it has {0}")]
    NameLength(usize),
    #[error("the backing file's name {0:?} would be read as a protocol and not as a file")]
    NameIsProtocol(String),
}

impl Blueprint {
    /// A disk of zeros; its size is rounded up to whole sectors.
    pub fn empty(virtual_size: u64) -> Result<Self, BlueprintError> {
        let rounded = virtual_size.checked_next_multiple_of(SECTOR).unwrap_or(0);
        if rounded == 0 || rounded.div_ceil(BYTES_PER_L1_ENTRY) > MAX_L1_ENTRIES {
            return Err(BlueprintError::Size(virtual_size));
        }
        Ok(Self {
            virtual_size: rounded,
            backing_file: None,
        })
    }

    /// A disk with the backing file's content, which is not written to.
    pub fn overlay(virtual_size: u64, backing_file: BackingFile) -> Result<Self, BlueprintError> {
        let path = &backing_file.path;
        if !(1..=MAX_BACKING_NAME).contains(&path.len()) {
            return Err(BlueprintError::NameLength(path.len()));
        }
        // QEMU takes a prefix with a colon for a protocol, unless a slash comes first.
        let colon = path.find(':');
        if colon.is_some_and(|colon| path.find('/').is_none_or(|slash| colon < slash)) {
            return Err(BlueprintError::NameIsProtocol(backing_file.path));
        }
        Ok(Self {
            backing_file: Some(backing_file),
            ..Self::empty(virtual_size)?
        })
    }

    pub fn virtual_size(&self) -> u64 {
        self.virtual_size
    }

    /// The clusters that are not all zero, and the length of the file.
    pub(crate) fn layout(&self) -> Layout {
        let l1_entries = self.virtual_size.div_ceil(BYTES_PER_L1_ENTRY);
        let l1_clusters = (l1_entries * 8).div_ceil(CLUSTER);
        let clusters = 3 + l1_clusters;
        let mut refcounts = Vec::new();
        for _ in 0..clusters {
            refcounts.extend_from_slice(&1_u16.to_be_bytes());
        }
        Layout {
            header: self.header(l1_entries),
            refcount_table: (CLUSTER, (2 * CLUSTER).to_be_bytes()),
            refcount_block: (2 * CLUSTER, refcounts),
            length: clusters * CLUSTER,
        }
    }

    fn header(&self, l1_entries: u64) -> Vec<u8> {
        let mut extensions = Vec::new();
        if let Some(backing_file) = &self.backing_file {
            extension(
                &mut extensions,
                EXTENSION_BACKING_FORMAT,
                backing_file.format.name().as_bytes(),
            );
        }
        extension(&mut extensions, 0, &[]);
        let name = self.backing_file.as_ref().map_or("", |file| &file.path);
        let name_at = if name.is_empty() {
            0
        } else {
            V3_HEADER + extensions.len()
        };

        let mut header = BigEndian(Vec::with_capacity(
            V3_HEADER + extensions.len() + name.len(),
        ));
        header.bytes(&MAGIC);
        header.u32(3);
        header.u64(u64::try_from(name_at).unwrap_or(0));
        header.u32(u32::try_from(name.len()).unwrap_or(0));
        header.u32(CLUSTER_BITS);
        header.u64(self.virtual_size);
        header.u32(0); // not encrypted
        header.u32(u32::try_from(l1_entries).unwrap_or(u32::MAX));
        header.u64(3 * CLUSTER);
        header.u64(CLUSTER);
        header.u32(1); // clusters of the refcount table
        header.u32(0); // snapshots
        header.u64(0);
        header.u64(0); // incompatible, compatible and autoclear features
        header.u64(0);
        header.u64(0);
        header.u32(REFCOUNT_ORDER);
        header.u32(u32::try_from(V3_HEADER).unwrap_or(0));
        header.bytes(&extensions);
        header.bytes(name.as_bytes());
        header.0
    }
}

/// The parts of a file that are not zero.
#[derive(Debug)]
pub(crate) struct Layout {
    header: Vec<u8>,
    refcount_table: (u64, [u8; 8]),
    refcount_block: (u64, Vec<u8>),
    pub(crate) length: u64,
}

impl Layout {
    pub(crate) fn pieces(&self) -> [(u64, &[u8]); 3] {
        [
            (0, &self.header),
            (self.refcount_table.0, &self.refcount_table.1),
            (self.refcount_block.0, &self.refcount_block.1),
        ]
    }
}

fn extension(to: &mut Vec<u8>, kind: u32, data: &[u8]) {
    to.extend_from_slice(&kind.to_be_bytes());
    to.extend_from_slice(&u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
    to.extend_from_slice(data);
    to.resize(to.len().next_multiple_of(8), 0);
}

/// Writes big-endian numbers.
struct BigEndian(Vec<u8>);

impl BigEndian {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }
}
