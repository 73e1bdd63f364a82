//! Which part of a file a client wants: the headers `Range` and `If-Range`.

use std::ops::Range;

/// What to send of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// A part that is not empty.
    Bytes(Range<u64>),
    /// The file has no such part.
    Unsatisfiable,
}

/// A header that is not understood, and one with several ranges, asks for the whole file, as HTTP allows.
pub(crate) fn part(range: Option<&str>, if_range: Option<&str>, tag: &str, length: u64) -> Part {
    if if_range.is_some_and(|known| known != tag) {
        return Part::Whole;
    }
    let Some((first, last)) = range.and_then(bounds) else {
        return Part::Whole;
    };
    let bounds = match (first, last) {
        (Some(first), None) => first..length,
        (Some(first), Some(last)) if first <= last => first..length.min(last.saturating_add(1)),
        (None, Some(suffix)) => length.saturating_sub(suffix)..length,
        _ => return Part::Whole,
    };
    if bounds.is_empty() {
        Part::Unsatisfiable
    } else {
        Part::Bytes(bounds)
    }
}

/// The first and the last byte of one range.
fn bounds(header: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (first, last) = header.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        digits if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().ok().map(Some)
        }
        _ => None,
    };
    Some((number(first)?, number(last)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn range_selects_bytes() {
        let check = |range: &str, expected: Part| {
            assert_eq!(part(Some(range), None, "\"a\"", 100), expected, "{range}");
        };
        check("bytes=0-", Part::Bytes(0..100));
        check("bytes=10-19", Part::Bytes(10..20));
        check("bytes=90-200", Part::Bytes(90..100));
        check("bytes=99-99", Part::Bytes(99..100));
        check("bytes=-10", Part::Bytes(90..100));
        check("bytes=-200", Part::Bytes(0..100));
        check("bytes=100-", Part::Unsatisfiable);
        check("bytes=-0", Part::Unsatisfiable);
        check("bytes=0-18446744073709551615", Part::Bytes(0..100));
        check("bytes=20-10", Part::Whole);
        check("bytes=0-1,5-6", Part::Whole);
        check("bytes=-", Part::Whole);
        check("bytes=+1-2", Part::Whole);
        check("items=0-1", Part::Whole);
    }

    #[test]
    fn part_of_another_version_is_not_sent() {
        let of = |known: &str| part(Some("bytes=10-"), Some(known), "\"a\"", 100);
        assert_eq!(of("\"a\""), Part::Bytes(10..100));
        assert_eq!(of("\"b\""), Part::Whole);
        assert_eq!(of("Thu, 26 Nov 2026 04:00:00 GMT"), Part::Whole);
        assert_eq!(part(None, None, "\"a\"", 100), Part::Whole);
    }

    proptest! {
        #[test]
        fn parts_are_within_the_file(text in "(bytes=)?[0-9, -]{0,24}", length in 0..1000_u64) {
            if let Part::Bytes(bytes) = part(Some(&text), None, "", length) {
                prop_assert!(bytes.start < bytes.end && bytes.end <= length);
            }
        }
    }
}
