//! The size of a new raw image.
//!
//! A persistent volume claim requests a size, and the filesystem on the volume uses some of it. A
//! disk that is slightly smaller than requested is better than none; one that is much smaller is a
//! mistake.

/// The requested size of a new image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawSize {
    pub bytes: u64,
    /// By how many percent the image may be smaller.
    pub tolerated_percent: u8,
    /// Bytes of the filesystem that stay free.
    pub reserve_bytes: u64,
}

/// Not even the smallest tolerated size fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a disk of {wanted} bytes does not fit into {available} bytes, even if it is \
     {tolerated_percent} % smaller"
)]
pub struct TooSmall {
    pub wanted: u64,
    pub available: u64,
    pub tolerated_percent: u8,
}

impl RawSize {
    /// The size of the image on a filesystem with `free` bytes.
    pub fn fit(self, free: u64) -> Result<u64, TooSmall> {
        let available = free.saturating_sub(self.reserve_bytes);
        if self.bytes <= available {
            return Ok(self.bytes);
        }
        let kept = 100 - u128::from(self.tolerated_percent.min(100));
        let least = u128::from(self.bytes) * kept / 100;
        if least <= u128::from(available) && available > 0 {
            return Ok(available);
        }
        Err(TooSmall {
            wanted: self.bytes,
            available,
            tolerated_percent: self.tolerated_percent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_is_as_large_as_requested_or_slightly_smaller() {
        let check = |bytes, free, expected: Option<u64>| {
            let size = RawSize {
                bytes,
                tolerated_percent: 10,
                reserve_bytes: 100,
            };
            assert_eq!(size.fit(free).ok(), expected, "{bytes} in {free}");
        };
        check(1000, 5000, Some(1000));
        check(1000, 1100, Some(1000));
        check(1000, 1099, Some(999));
        check(1000, 1000, Some(900));
        check(1000, 999, None);
        check(1000, 50, None);
        check(u64::MAX, u64::MAX, Some(u64::MAX - 100));
        check(0, 0, Some(0));
    }
}
