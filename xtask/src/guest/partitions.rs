//! The first sector of a disk: the boot code of a BIOS, and the table of up to four partitions.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

const SECTOR: u64 = 512;
const CODE: usize = 440;
const SIGNATURE: usize = 440;
const TABLE: usize = 446;
const ENTRY: usize = 16;
/// A position beyond what cylinders, heads and sectors can name.
const NOWHERE: [u8; 3] = [0xfe, 0xff, 0xff];

/// A part of a disk, in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) kind: Kind,
    pub(super) first: u32,
    pub(super) sectors: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// FAT, from which the BIOS boots.
    Boot,
    Linux,
}

impl Partition {
    /// In bytes.
    pub(super) fn offset(self) -> u64 {
        u64::from(self.first) * SECTOR
    }

    /// In bytes.
    pub(super) fn size(self) -> u64 {
        u64::from(self.sectors) * SECTOR
    }
}

/// Writes the first sector with the boot code of syslinux.
pub(super) fn write(disk: &Path, signature: u32, partitions: &[Partition]) -> Result<()> {
    let sector = first_sector(&boot_code()?, signature, partitions)?;
    let file = fs::File::options().write(true).open(disk)?;
    file.write_all_at(&sector, 0)
        .with_context(|| format!("write the first sector of {}", disk.display()))
}

/// The places of Debian 12 and of later versions.
fn boot_code() -> Result<Vec<u8>> {
    let places = ["/usr/lib/SYSLINUX/mbr.bin", "/usr/lib/syslinux/mbr/mbr.bin"];
    let found = places.iter().find(|path| Path::new(path).is_file());
    let path = found.context("no boot code of syslinux: run scripts/setup.sh image")?;
    fs::read(path).with_context(|| format!("read {path}"))
}

fn first_sector(code: &[u8], signature: u32, partitions: &[Partition]) -> Result<[u8; 512]> {
    ensure!(code.len() <= CODE, "the boot code is too long");
    ensure!(partitions.len() <= 4, "there are too many partitions");
    let mut sector = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = sector.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, code);
    put(SIGNATURE, &signature.to_le_bytes());
    for (number, partition) in partitions.iter().enumerate() {
        let at = TABLE + number * ENTRY;
        let (flag, kind) = match partition.kind {
            Kind::Boot => (0x80, 0x0e),
            Kind::Linux => (0, 0x83),
        };
        put(at, &[flag]);
        put(at + 1, &NOWHERE);
        put(at + 4, &[kind]);
        put(at + 5, &NOWHERE);
        put(at + 8, &partition.first.to_le_bytes());
        put(at + 12, &partition.sectors.to_le_bytes());
    }
    put(510, &[0x55, 0xaa]);
    Ok(sector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_the_partitions() {
        let boot = Partition {
            kind: Kind::Boot,
            first: 2048,
            sectors: 0x1_0000,
        };
        let root = Partition {
            kind: Kind::Linux,
            first: 2048 + 0x1_0000,
            sectors: 8,
        };
        let sector = first_sector(&[1, 2], 0x0403_0201, &[boot, root]).unwrap();
        assert_eq!(sector[..3], [1, 2, 0]);
        assert_eq!(sector[440..446], [1, 2, 3, 4, 0, 0]);
        let boot = [
            0x80, 0xfe, 0xff, 0xff, 0x0e, 0xfe, 0xff, 0xff, 0, 8, 0, 0, 0, 0, 1, 0,
        ];
        assert_eq!(sector[446..462], boot);
        let root = [
            0, 0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff, 0, 8, 1, 0, 8, 0, 0, 0,
        ];
        assert_eq!(sector[462..478], root);
        assert_eq!(
            sector[478..],
            [[0; 16].as_slice(), &[0; 16], &[0x55, 0xaa]].concat()
        );
        first_sector(&[0; 441], 1, &[]).unwrap_err();
    }
}
