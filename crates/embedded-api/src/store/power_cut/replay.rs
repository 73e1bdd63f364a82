//! A disk that forgets what was not synced.

use std::{collections::BTreeMap, fs, path::Path};

use super::recorder::Op;

/// What a disk writes at once.
const SECTOR: usize = 512;

/// The file whose directory entry its first sync does not sync.
const DATABASE: &str = "api.db";

/// Files as they are on disk for sure, and what may or may not have reached it.
#[derive(Debug, Default)]
pub(super) struct Disk(BTreeMap<String, Contents>);

#[derive(Debug, Default)]
struct Contents {
    durable: Vec<u8>,
    pending: Vec<Op>,
    /// `SQLite` syncs the directory with the first sync of a new log or journal.
    synced: bool,
    /// Removed, but the directory was not synced since.
    removed: bool,
}

impl Disk {
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { file, .. } | Op::Truncate { file, .. } => {
                let contents = self.0.entry(file.clone()).or_default();
                if contents.removed {
                    *contents = Contents::default();
                }
                contents.pending.push(op.clone());
            }
            Op::Sync { file } => {
                let contents = self.0.entry(file.clone()).or_default();
                for op in std::mem::take(&mut contents.pending) {
                    put(&mut contents.durable, &op, |_| true);
                }
                if !std::mem::replace(&mut contents.synced, true) && file != DATABASE {
                    self.0.retain(|_, contents| !contents.removed);
                }
            }
            Op::Delete { file, durable } => {
                if *durable {
                    self.0.remove(file);
                } else if let Some(contents) = self.0.get_mut(file) {
                    contents.removed = true;
                }
            }
            Op::Acknowledged(_) => {}
        }
    }

    /// Writes the files that a power cut leaves now: a third of the pending writes is there, a
    /// third is not, and of a third some sectors are.
    pub(super) fn cut(&self, random: &mut Random, dir: &Path) {
        for (name, contents) in &self.0 {
            if contents.removed && random.below(2) == 0 {
                continue;
            }
            let mut bytes = contents.durable.clone();
            for op in &contents.pending {
                match random.below(3) {
                    0 => {}
                    1 => put(&mut bytes, op, |_| true),
                    _ => put(&mut bytes, op, |_| random.below(2) == 0),
                }
            }
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
}

fn put(file: &mut Vec<u8>, op: &Op, mut is_written: impl FnMut(usize) -> bool) {
    match op {
        Op::Write { offset, bytes, .. } => {
            for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                if !is_written(number) {
                    continue;
                }
                let start = offset + number * SECTOR;
                let end = start + sector.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[start..end].copy_from_slice(sector);
            }
        }
        Op::Truncate { size, .. } if is_written(0) => file.resize(*size, 0),
        _ => {}
    }
}

/// Splitmix64: the same cuts for the same seed.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let bound = u64::try_from(bound).expect("a small number");
        usize::try_from(mixed % bound).expect("below the bound")
    }
}
