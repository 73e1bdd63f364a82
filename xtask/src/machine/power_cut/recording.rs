//! Reads what QEMU's `blklogwrites` recorded of a disk: writes, discards and flushes in their order, in the format
//! of the kernel's dm-log-writes.
//!
//! A write that was in flight when a flush began counts as flushed, as the recording does not tell them apart.

use std::{fs::File, os::unix::fs::FileExt as _};

use anyhow::{Context as _, Result, ensure};

use super::records::SECTOR;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
/// The write is on the disk when it is acknowledged.
const THROUGH: u64 = 2;
const DISCARD: u64 = 4;

/// The recording of one disk.
#[derive(Debug)]
pub(super) struct Recording {
    log: File,
    entries: Vec<Entry>,
}

/// One request to the disk. Offsets and lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Write {
        offset: u64,
        length: u64,
        /// Where its data is in the log.
        at: u64,
    },
    Discard {
        offset: u64,
        length: u64,
    },
    Flush,
}

impl Recording {
    pub(super) fn read(log: File) -> Result<Self> {
        let sector = SECTOR as u64;
        let head = numbers(&log, 0)?;
        ensure!(
            head[..2] == [MAGIC, VERSION],
            "the log does not begin with the mark of a recording"
        );
        ensure!(
            head[3] & 0xffff_ffff == sector,
            "the log has sectors of another size than {sector} bytes"
        );
        let mut entries = Vec::new();
        let mut at = sector;
        for _ in 0..head[2] {
            let [first, count, flags, _] = numbers(&log, at)?;
            at += sector;
            let (offset, length) = (first * sector, count * sector);
            if flags & DISCARD != 0 {
                entries.push(Entry::Discard { offset, length });
            } else if count > 0 {
                entries.push(Entry::Write { offset, length, at });
                at += length;
            }
            if flags & (FLUSH | THROUGH) != 0 {
                entries.push(Entry::Flush);
            }
        }
        Ok(Self { log, entries })
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of the first write at or after an offset of the disk.
    pub(super) fn first_at(&self, from: u64) -> Option<usize> {
        let is_there =
            |entry: &Entry| matches!(entry, Entry::Write { offset, .. } if *offset >= from);
        self.entries.iter().position(is_there)
    }

    /// The sectors that the entries before `end` write at or after an offset of the disk.
    pub(super) fn sectors_from(&self, from: u64, end: usize) -> Result<Vec<Vec<u8>>> {
        let mut sectors = Vec::new();
        for entry in self.entries.iter().take(end) {
            if let Entry::Write { offset, .. } = entry
                && *offset >= from
            {
                let data = self.data(entry)?;
                sectors.extend(data.chunks(SECTOR).map(<[u8]>::to_vec));
            }
        }
        Ok(sectors)
    }

    /// What an entry writes.
    pub(super) fn data(&self, entry: &Entry) -> Result<Vec<u8>> {
        let Entry::Write { length, at, .. } = entry else {
            return Ok(Vec::new());
        };
        let mut data = vec![0; usize::try_from(*length)?];
        self.log
            .read_exact_at(&mut data, *at)
            .with_context(|| format!("read {length} bytes at {at} of the log"))?;
        Ok(data)
    }
}

/// The four numbers at the beginning of a head.
fn numbers(log: &File, at: u64) -> Result<[u64; 4]> {
    let mut bytes = [0; 32];
    log.read_exact_at(&mut bytes, at)
        .with_context(|| format!("read a head at {at} of the log"))?;
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into()?);
    }
    Ok(numbers)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A log of heads with their data.
    pub(in super::super) fn log(entries: &[([u64; 4], &[u8])]) -> File {
        let count = entries.len() as u64;
        let head = ([MAGIC, VERSION, count, 512], &[][..]);
        let mut bytes = Vec::new();
        for (numbers, data) in std::iter::once(&head).chain(entries) {
            for number in numbers {
                bytes.extend(number.to_le_bytes());
            }
            bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
            bytes.extend(*data);
        }
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file
    }

    #[test]
    fn writes_flushes_and_discards_are_read() {
        let data = [7; 1024];
        let log = log(&[
            ([8, 2, 0, 0], &data),
            ([0, 0, FLUSH, 0], &[]),
            ([2048, 128, DISCARD, 0], &[]),
            ([9, 1, THROUGH, 0], &data[..512]),
        ]);
        let recording = Recording::read(log).unwrap();
        let writes = [(4096, 1024, 1024), (4608, 512, 3584)];
        let [first, second] =
            writes.map(|(offset, length, at)| Entry::Write { offset, length, at });
        let discard = Entry::Discard {
            offset: 2048 * 512,
            length: 128 * 512,
        };
        let expected = [first, Entry::Flush, discard, second, Entry::Flush];
        assert_eq!(recording.entries(), expected);
        assert_eq!(recording.data(&first).unwrap(), data);
        assert_eq!(recording.first_at(4097), Some(3));
        assert_eq!(recording.first_at(8192), None);
        assert_eq!(recording.sectors_from(4096, 3).unwrap().len(), 2);
    }

    #[test]
    fn anything_else_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        Recording::read(file).unwrap_err();
        let cut_off = log(&[([8, 200, 0, 0], &[]), ([0, 0, FLUSH, 0], &[])]);
        Recording::read(cut_off).unwrap_err();
    }
}
