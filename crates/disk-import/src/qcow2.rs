//! Whether all tables and clusters of a qcow2 image lie in its file.
//!
//! `qemu-img` reads zeros beyond the end of a file, so it would convert an image of which only the
//! beginning exists without an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::ImportError;

/// The longest first table that QEMU accepts.
const MOST_L1_BYTES: u64 = 32 << 20;
/// Where standard entries have their offsets.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const INCOMPATIBLE_EXTENDED_L2: u64 = 1 << 4;

/// What the header says about the tables.
struct Tables {
    cluster_bits: u32,
    l1_offset: u64,
    l1_bytes: u64,
    /// Bytes of an entry of a second table.
    entry: usize,
}

/// Fails if the file is cut. `probe` has accepted its header.
pub(crate) fn check_complete(file: &File) -> Result<(), ImportError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::UnexpectedEof => cut(),
        _ => ImportError::Io {
            what: "read scratch space",
            source,
        },
    };
    let length = file.metadata().map_err(failed)?.len();
    let tables = Tables::read(file).map_err(failed)?;
    if tables.l1_bytes > MOST_L1_BYTES || !(9..=21).contains(&tables.cluster_bits) {
        return Err(ImportError::Damaged("its tables are too long".to_owned()));
    }
    let mut l1 = vec![0; usize::try_from(tables.l1_bytes).unwrap_or_default()];
    file.read_exact_at(&mut l1, tables.l1_offset)
        .map_err(failed)?;
    let mut l2 = vec![0; 1 << tables.cluster_bits];
    // Each table has a cluster of its own; else a small file could name millions of them.
    let mut left = length.div_ceil(1 << tables.cluster_bits);
    for entry in entries(&l1, 8) {
        let offset = entry & OFFSET;
        if offset == 0 {
            continue;
        }
        left = left.checked_sub(1).ok_or_else(|| {
            ImportError::Damaged("the qcow2 image names one table several times".to_owned())
        })?;
        file.read_exact_at(&mut l2, offset).map_err(failed)?;
        let all = entries(&l2, tables.entry);
        if all.map(|entry| tables.offset(entry)).any(|at| at >= length) {
            return Err(cut());
        }
    }
    Ok(())
}

impl Tables {
    fn read(file: &File) -> io::Result<Self> {
        let number = |at: u64, length: usize| {
            let mut bytes = [0; 8];
            let part = bytes.get_mut(8 - length..).unwrap_or_default();
            file.read_exact_at(part, at)?;
            Ok::<u64, io::Error>(u64::from_be_bytes(bytes))
        };
        let version = number(4, 4)?;
        let features = if version >= 3 { number(72, 8)? } else { 0 };
        Ok(Self {
            cluster_bits: u32::try_from(number(20, 4)?).unwrap_or(u32::MAX),
            l1_offset: number(40, 8)?,
            l1_bytes: number(36, 4)? * 8,
            entry: if features & INCOMPATIBLE_EXTENDED_L2 == 0 {
                8
            } else {
                16
            },
        })
    }

    /// Where the data of an entry begins; 0 if it has none.
    fn offset(&self, entry: u64) -> u64 {
        if entry & COMPRESSED == 0 {
            entry & OFFSET
        } else {
            entry & ((1 << (62 - (self.cluster_bits - 8))) - 1)
        }
    }
}

fn entries(table: &[u8], size: usize) -> impl Iterator<Item = u64> {
    let all = table
        .chunks_exact(size)
        .filter_map(|entry| entry.first_chunk());
    all.map(|entry| u64::from_be_bytes(*entry))
}

fn cut() -> ImportError {
    ImportError::Damaged("the qcow2 image ends before its data does".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn no_more_tables_are_read_than_the_file_has_clusters() {
        let check = |tables: u8, expected: bool| {
            let mut bytes = vec![0; 1536];
            bytes[..4].copy_from_slice(b"QFI\xfb");
            bytes[7] = 2;
            bytes[23] = 9;
            bytes[39] = tables;
            bytes[46] = 2;
            for entry in bytes[512..1024].chunks_exact_mut(8) {
                entry[6] = 4;
            }
            let found = check_complete(&file(&bytes));
            assert_eq!(found.is_ok(), expected, "{tables}: {found:?}");
        };
        check(1, true);
        check(3, true);
        check(4, false);
        check(64, false);
    }

    proptest! {
        #[test]
        fn no_tables_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..2048), bits in 9_u8..12) {
            if let Some(header) = bytes.get_mut(..48) {
                header[20..24].copy_from_slice(&[0, 0, 0, bits]);
                header[36..40].copy_from_slice(&[0, 0, 0, 4]);
                header[40..47].fill(0);
            }
            drop(check_complete(&file(&bytes)));
        }
    }
}
