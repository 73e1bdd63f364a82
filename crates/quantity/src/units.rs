//! The suffixes of quantities, and the billionths in which amounts are counted.

/// The unit in billionths.
pub(crate) const NANO: i128 = 1_000_000_000;

/// The binary suffixes and their powers of two, the largest first.
pub(crate) const BINARY: [(&str, u32); 6] = [
    ("Ei", 60),
    ("Pi", 50),
    ("Ti", 40),
    ("Gi", 30),
    ("Mi", 20),
    ("Ki", 10),
];

/// The decimal suffixes and their values in billionths, the largest first.
pub(crate) const DECIMAL: [(&str, i128); 10] = [
    ("E", NANO * 1_000_000_000_000_000_000),
    ("P", NANO * 1_000_000_000_000_000),
    ("T", NANO * 1_000_000_000_000),
    ("G", NANO * 1_000_000_000),
    ("M", NANO * 1_000_000),
    ("k", NANO * 1_000),
    ("", NANO),
    ("m", 1_000_000),
    ("u", 1_000),
    ("n", 1),
];

pub(crate) fn div_ceil(value: i128, by: i128) -> i128 {
    let down = value.div_euclid(by);
    if value.rem_euclid(by) == 0 {
        down
    } else {
        down + 1
    }
}
