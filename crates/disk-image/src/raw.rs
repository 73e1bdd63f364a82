//! How large a new raw image is to be.
//!
//! A claim promises a size, and a filesystem on it takes some of that for itself. A disk that is a
//! little smaller than promised is better than none; one that is much smaller is a mistake.

/// What is wanted of a new image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawSize {
    pub bytes: u64,
    /// How many hundredths of the size may be missing.
    pub tolerated_percent: u8,
    /// Bytes of the filesystem that stay free.
    pub reserve_bytes: u64,
}

/// There is not even room for the least that is tolerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a disk of {wanted} bytes does not fit into {available} bytes, nor does one that is \
     {tolerated_percent} % smaller"
)]
pub struct TooSmall {
    pub wanted: u64,
    pub available: u64,
    pub tolerated_percent: u8,
}

impl RawSize {
    /// The size of the image where `free` bytes are left.
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
    fn a_disk_is_as_large_as_promised_or_a_little_smaller() {
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
