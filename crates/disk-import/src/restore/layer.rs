//! One qcow2 file of a backup, as QEMU's backup job writes it: what it holds of each part of the disk.
//!
//! **Invariant**: nothing that the file claims costs more memory than its tables, which are bounded; every offset is
//! checked against the length of the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use disk_image::{Format, PROBE_LENGTH, SECTOR, probe};
use launcher_channel::BackedUpVolume;
use sha2::{Digest as _, Sha256};

use super::BackupProblem;
use crate::ImportError;
use crate::error::io_failed;

/// Where standard entries of tables have their offsets.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// Bits that entries of the first table do not have.
const L1_RESERVED: u64 = !(OFFSET | 1 << 63);
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
/// Enough for 64 TiB in clusters of 64 KiB.
const MAX_L1_BYTES: u64 = 1 << 20;
/// 64 KiB, which is QEMU's choice, to 2 MiB.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 16..=21;
/// Where the fields of the header are.
const VERSION_AT: usize = 4;
const CLUSTER_BITS_AT: usize = 20;
const L1_ENTRIES_AT: usize = 36;
const L1_OFFSET_AT: usize = 40;
const FEATURES_AT: usize = 72;
const CHUNK: usize = 1 << 20;

/// What a file holds of a part of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Nothing: the backup that it builds on has it.
    Absent,
    Zeros,
    /// Where the bytes are in the file.
    Data(u64),
}

/// What changes with the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// An open file.
#[derive(Debug)]
pub(super) struct Layer {
    file: File,
    /// When it was opened, before its sum was computed.
    stamp: Stamp,
    length: u64,
    /// Of the disk.
    size: u64,
    cluster_bits: u32,
    l1: Vec<u64>,
    /// The index of the second table that is in memory.
    current: Option<usize>,
    l2: Vec<u64>,
    sum: Option<String>,
    /// For messages.
    directory: String,
    name: String,
}

impl Stamp {
    fn of(file: &File) -> Result<Self, ImportError> {
        let found = file.metadata();
        let found = found.map_err(io_failed("look at a file of the backup"))?;
        Ok(Self {
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

impl Layer {
    pub(super) fn open(
        file: File,
        entry: &BackedUpVolume,
        directory: &str,
    ) -> Result<Self, ImportError> {
        let failed = io_failed("read a file of the backup");
        let stamp = Stamp::of(&file)?;
        let length = stamp.length;
        let mut layer = Self {
            file,
            stamp,
            length,
            size: 0,
            cluster_bits: 0,
            l1: Vec::new(),
            current: None,
            l2: Vec::new(),
            sum: entry.sha256.clone(),
            directory: directory.to_owned(),
            name: entry.file.clone(),
        };
        let head = usize::try_from(length).unwrap_or(PROBE_LENGTH);
        let mut head = vec![0; head.min(PROBE_LENGTH)];
        layer.file.read_exact_at(&mut head, 0).map_err(&failed)?;
        let (offset, entries) = layer.read_header(&head)?;
        layer.l1 = layer.table(offset, entries)?;
        if layer.l1.iter().any(|entry| entry & L1_RESERVED != 0) {
            return Err(layer.problem("its first table is damaged"));
        }
        if let Some(said) = entry.capacity.filter(|said| *said != layer.size) {
            let found = layer.size;
            let text = format!("its disk has {found} bytes, and backup.json says {said}");
            return Err(layer.problem(&text));
        }
        Ok(layer)
    }

    /// Returns where the first table is, and how many entries it needs.
    fn read_header(&mut self, head: &[u8]) -> Result<(u64, usize), ImportError> {
        let found = probe(head, self.length);
        let found = found.map_err(|error| self.problem(&error.to_string()))?;
        if found.format != Format::Qcow2 {
            return Err(self.problem("it is no qcow2 image"));
        }
        let safe = found.check_container_disk();
        safe.map_err(|refusal| self.problem(&refusal.to_string()))?;
        let is_v3 = number(head, VERSION_AT, 4) >= 3;
        let features = if is_v3 {
            number(head, FEATURES_AT, 8)
        } else {
            0
        };
        if features != 0 {
            let text =
                format!("it uses qcow2 features that a backup does not have (bits {features:#x})");
            return Err(self.problem(&text));
        }
        self.size = found.virtual_size;
        self.cluster_bits = u32::try_from(number(head, CLUSTER_BITS_AT, 4)).unwrap_or(0);
        if self.size == 0 || !self.size.is_multiple_of(SECTOR) {
            return Err(self.problem("the size of its disk is impossible"));
        }
        if !CLUSTER_BITS.contains(&self.cluster_bits) {
            return Err(self.problem("its clusters are not of 64 KiB to 2 MiB"));
        }
        let entries = self.size.div_ceil(self.bytes_of_table());
        if entries * 8 > MAX_L1_BYTES {
            return Err(self.problem("its disk is too large"));
        }
        if number(head, L1_ENTRIES_AT, 4) < entries {
            return Err(self.problem("its first table is too short for its disk"));
        }
        let entries = usize::try_from(entries).unwrap_or_default();
        Ok((number(head, L1_OFFSET_AT, 8), entries))
    }

    /// The size of the disk.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The length of the file.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Bytes of the disk that one second table describes.
    fn bytes_of_table(&self) -> u64 {
        self.cluster() * (self.cluster() / 8)
    }

    /// What the file holds at an offset of the disk, and for how many bytes.
    pub(super) fn find(&mut self, at: u64) -> Result<(Extent, u64), ImportError> {
        let (table, cluster) = (self.bytes_of_table(), self.cluster());
        let index = usize::try_from(at / table).unwrap_or(usize::MAX);
        let l1 = self.l1.get(index).copied().unwrap_or_default() & OFFSET;
        if l1 == 0 {
            let end = (at / table + 1).saturating_mul(table);
            return Ok((Extent::Absent, end.min(self.size) - at));
        }
        if self.current != Some(index) {
            let entries = usize::try_from(cluster / 8).unwrap_or_default();
            self.l2 = self.table(l1, entries)?;
            self.current = Some(index);
        }
        let first = usize::try_from(at % table / cluster).unwrap_or(usize::MAX);
        let within = at % cluster;
        let entry = self.l2.get(first).copied().unwrap_or_default();
        let left = (cluster - within).min(self.size - at);
        if entry & COMPRESSED != 0 {
            return Err(self.problem("it is compressed, which a backup is not"));
        }
        let offset = entry & OFFSET;
        if entry & ZERO != 0 {
            return Ok((Extent::Zeros, left));
        }
        if offset == 0 {
            return Ok((Extent::Absent, left));
        }
        if !offset.is_multiple_of(cluster) || offset >= self.length {
            return Err(self.problem("it ends before its data does, or is damaged"));
        }
        Ok((Extent::Data(offset + within), left))
    }

    /// Reads data. Behind the end of the file, which may be within the last cluster, there are zeros.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), ImportError> {
        let failed = io_failed("read a file of the backup");
        let known = usize::try_from(self.length.saturating_sub(at)).unwrap_or(buffer.len());
        let (data, rest) = buffer.split_at_mut(known.min(buffer.len()));
        rest.fill(0);
        self.file.read_exact_at(data, at).map_err(failed)
    }

    fn table(&self, at: u64, entries: usize) -> Result<Vec<u64>, ImportError> {
        let length = (entries as u64).saturating_mul(8);
        let end = at.checked_add(length);
        if at == 0 || !at.is_multiple_of(self.cluster()) || end.is_none_or(|end| end > self.length)
        {
            return Err(self.problem("a table is not in the file"));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(io_failed("read a file of the backup"))?;
        let all = bytes.chunks_exact(8).filter_map(|one| one.first_chunk());
        Ok(all.map(|one| u64::from_be_bytes(*one)).collect())
    }

    /// Reads the whole file and compares it with its checksum; false if it has none.
    pub(super) fn check_sum(&self, mut on_read: impl FnMut(u64)) -> Result<bool, ImportError> {
        let Some(expected) = &self.sum else {
            on_read(self.length);
            return Ok(false);
        };
        let failed = io_failed("read a file of the backup");
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        loop {
            let read = match self.file.read_at(&mut buffer, at) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            hasher.update(buffer.get(..read).unwrap_or_default());
            at += read as u64;
            on_read(read as u64);
        }
        let found = hex::encode(hasher.finalize());
        if !found.eq_ignore_ascii_case(expected) {
            let text = format!("its sha256 is {found}, and backup.json says {expected}");
            return Err(self.problem(&text));
        }
        Ok(true)
    }

    /// Fails if the file may have changed since it was opened: what was read may not be what was verified.
    pub(super) fn check_unchanged(&self) -> Result<(), ImportError> {
        if Stamp::of(&self.file)? == self.stamp {
            return Ok(());
        }
        Err(ImportError::BackupChanged {
            directory: self.directory.clone(),
            file: self.name.clone(),
        })
    }

    fn problem(&self, problem: &str) -> ImportError {
        BackupProblem::File {
            directory: self.directory.clone(),
            file: self.name.clone(),
            problem: problem.to_owned(),
        }
        .into()
    }
}

/// A big-endian number of a header, which `probe` has found to be long enough.
fn number(head: &[u8], at: usize, length: usize) -> u64 {
    let bytes = head.get(at..at + length).unwrap_or_default();
    bytes
        .iter()
        .fold(0, |all, byte| all << 8 | u64::from(*byte))
}
