//! Pure thresholds of disk space.

use std::{io, path::Path};

/// Images are removed from this usage on, as by kubelets, until the lower one is reached.
const IMAGES_HIGH_PERCENT: u64 = 85;
const IMAGES_LOW_PERCENT: u64 = 80;
/// A disk is short of space below a tenth of its size, or below this many bytes on a large disk.
const SHORT_PERCENT: u64 = 10;
const SHORT_BYTES: u64 = 5 << 30;

/// The space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Space {
    /// Space that users other than root can use.
    pub(super) available: u64,
    pub(super) used: u64,
}

impl Space {
    pub(super) fn of(dir: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(Self {
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
            used: stat
                .f_blocks
                .saturating_sub(stat.f_bfree)
                .saturating_mul(stat.f_frsize),
        })
    }

    /// Whether new work has to wait. Work that waits goes on only when there is a fifth more space, so that the
    /// answer does not alternate.
    pub(super) fn is_short(self, before: bool) -> bool {
        let limit = percent_of(self.total(), SHORT_PERCENT).min(SHORT_BYTES);
        if before {
            self.available < percent_of(limit, 120)
        } else {
            self.available < limit
        }
    }

    pub(super) fn wants_images_removed(self) -> bool {
        self.used >= percent_of(self.total(), IMAGES_HIGH_PERCENT)
    }

    pub(super) fn has_enough_images_removed(self) -> bool {
        self.used <= percent_of(self.total(), IMAGES_LOW_PERCENT)
    }

    /// Without what is reserved for root, as `df` counts it: on some disks that is most of the space.
    fn total(self) -> u64 {
        self.used.saturating_add(self.available)
    }
}

/// Rounded down; without overflow for any disk.
fn percent_of(bytes: u64, percent: u64) -> u64 {
    let product = u128::from(bytes).saturating_mul(u128::from(percent));
    u64::try_from(product / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn space(available: u64, total: u64) -> Space {
        Space {
            available,
            used: total - available,
        }
    }

    #[test]
    fn nearly_full_disk_is_short_of_space() {
        for (available, total, before, expected) in [
            (GIB, 10 * GIB, false, false),
            (GIB - 1, 10 * GIB, false, true),
            (GIB, 10 * GIB, true, true),
            (GIB * 12 / 10, 10 * GIB, true, false),
            // A large disk has to have some gigabytes, not a tenth.
            (6 * GIB, 4000 * GIB, false, false),
            (5 * GIB - 1, 4000 * GIB, false, true),
            (6 * GIB, 4000 * GIB, true, false),
            (0, u64::MAX, false, true),
        ] {
            let found = space(available, total).is_short(before);
            assert_eq!(found, expected, "{available} of {total}, {before}");
        }
    }

    #[test]
    fn images_are_removed_between_two_thresholds() {
        for (available, wanted, enough) in [
            (100, false, true),
            (20, false, true),
            (16, false, false),
            (15, true, false),
            (0, true, false),
        ] {
            let space = space(available, 100);
            assert_eq!(space.wants_images_removed(), wanted, "{available}");
            assert_eq!(space.has_enough_images_removed(), enough, "{available}");
        }
    }

    #[test]
    fn space_of_a_directory_is_read() {
        let space = Space::of(Path::new("/")).unwrap();
        assert!(space.used > 0 && space.total() >= space.available);
        assert!(Space::of(Path::new("/does/not/exist")).is_err());
    }
}
