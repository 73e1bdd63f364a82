//! The block sizes of storage, for guests whose disks are to match it.

use std::{fs, os::fd::AsFd};

use domain_xml::BlockSizes;

/// Of storage that reports nothing usable, and of most file systems.
pub(crate) const USUAL: u32 = 4096;
const SECTOR: u32 = 512;
/// The largest block that QEMU emulates.
const MAX: u32 = 2 << 20;

/// Of a block device of the host, by its number.
pub(super) fn of_device(number: u64) -> BlockSizes {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = format!("/sys/dev/block/{major}:{minor}");
    // The queue of a partition is that of its disk.
    let read = |name: &str| {
        let paths = ["queue", "../queue"].map(|queue| format!("{device}/{queue}/{name}"));
        let mut texts = paths
            .iter()
            .filter_map(|path| fs::read_to_string(path).ok());
        texts.next()?.trim().parse::<u32>().ok()
    };
    let logical = usable(read("logical_block_size")).unwrap_or(SECTOR);
    let physical = usable(read("physical_block_size")).unwrap_or(logical);
    let discard = read("discard_granularity").unwrap_or(0);
    BlockSizes {
        logical,
        physical: physical.max(logical),
        discard: if discard.is_multiple_of(logical) {
            discard
        } else {
            0
        },
    }
}

/// Of files in a directory.
pub(crate) fn of_files(directory: &impl AsFd) -> BlockSizes {
    let size = rustix::fs::fstatvfs(directory).ok();
    let size = size.and_then(|stat| u32::try_from(stat.f_bsize).ok());
    let size = usable(size).unwrap_or(USUAL);
    BlockSizes {
        logical: size,
        physical: size,
        discard: 0,
    }
}

fn usable(size: Option<u32>) -> Option<u32> {
    size.filter(|size| (SECTOR..=MAX).contains(size) && size.is_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_that_qemu_emulates_are_used() {
        for (size, expected) in [
            (None, None),
            (Some(0), None),
            (Some(256), None),
            (Some(512), Some(512)),
            (Some(4096), Some(4096)),
            (Some(5000), None),
            (Some(4 << 20), None),
        ] {
            assert_eq!(usable(size), expected, "{size:?}");
        }
    }

    #[test]
    fn unknown_device_has_sectors() {
        let blocks = of_device(rustix::fs::makedev(4095, 1_048_575));
        assert_eq!(
            (blocks.logical, blocks.physical, blocks.discard),
            (512, 512, 0)
        );
    }

    #[test]
    fn files_have_the_block_size_of_their_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let opened = fs::File::open(directory.path()).unwrap();
        let blocks = of_files(&opened);
        assert!(blocks.logical.is_power_of_two(), "{blocks:?}");
    }
}
