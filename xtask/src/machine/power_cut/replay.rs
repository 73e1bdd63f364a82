//! Makes the disk that a power cut leaves: everything before the last flush is there, of the writes after it a
//! third, of another third some sectors.

use std::{fs::File, os::unix::fs::FileExt as _, path::Path};

use anyhow::{Context as _, Result};

use super::{
    DISK,
    recording::{Entry, Recording},
    records::SECTOR,
};

/// The disk after the first `point` entries.
pub(super) fn cut(
    recording: &Recording,
    point: usize,
    random: &mut Random,
    disk: &Path,
) -> Result<()> {
    let file = File::create(disk).with_context(|| format!("make {}", disk.display()))?;
    file.set_len(DISK)?;
    let entries = recording.entries().iter().take(point);
    let flushes = entries.clone().enumerate();
    let mut flushed = flushes.filter(|(_, entry)| **entry == Entry::Flush);
    let flushed = flushed.next_back().map_or(0, |(number, _)| number);
    for (number, entry) in entries.enumerate() {
        let Entry::Write { offset, .. } = entry else {
            // A disk may keep what was discarded.
            continue;
        };
        let data = recording.data(entry)?;
        if number < flushed {
            file.write_all_at(&data, *offset)?;
            continue;
        }
        let whole = random.below(3);
        for (sector, at) in data.chunks(SECTOR).zip((*offset..).step_by(SECTOR)) {
            let is_there = match whole {
                0 => false,
                1 => true,
                _ => random.below(2) == 0,
            };
            if is_there {
                file.write_all_at(sector, at)?;
            }
        }
    }
    Ok(())
}

/// Splitmix64.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below the bound; 0 if that is 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(mixed % bound).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::recording::tests::log, *};

    #[test]
    fn flushed_writes_are_kept_and_others_may_be_lost() {
        let sectors = [[1; 512], [2; 512], [3; 512]];
        let log = log(&[
            ([0, 1, 0, 0], &sectors[0]),
            ([0, 0, 1, 0], &[]),
            ([1, 1, 0, 0], &sectors[1]),
            ([0, 1, 0, 0], &sectors[2]),
        ]);
        let recording = Recording::read(log).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk");
        let mut found = std::collections::BTreeSet::new();
        for seed in 0..50 {
            cut(&recording, 4, &mut Random(seed), &disk).unwrap();
            let mut bytes = [0; 1024];
            File::open(&disk)
                .unwrap()
                .read_exact_at(&mut bytes, 0)
                .unwrap();
            found.insert((bytes[0], bytes[512]));
        }
        assert_eq!(found, [(1, 0), (1, 2), (3, 0), (3, 2)].into());
        cut(&recording, 2, &mut Random(1), &disk).unwrap();
        let mut bytes = [0; 1024];
        File::open(&disk)
            .unwrap()
            .read_exact_at(&mut bytes, 0)
            .unwrap();
        assert_eq!((bytes[0], bytes[512]), (1, 0));
    }
}
