//! Durations of the API: strings such as `1h30m` or `150ms`, kept as written.
//!
//! Parsing and formatting only; the meaning and the allowed values are defined elsewhere.

use std::fmt;

use k8s_openapi::jiff::SignedDuration;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Units and what they count in nanoseconds; those that begin like another come first.
const UNITS: &[(&str, i128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// More digits than this say nothing and could overflow.
const MAX_DIGITS: usize = 19;

/// A duration as it stands in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
#[serde(transparent)]
pub struct Duration(pub String);

/// The text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotADuration {
    text: String,
}

impl fmt::Display for NotADuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a duration; write numbers with units, such as 90s, 5m or 1h30m",
            self.text
        )
    }
}

impl std::error::Error for NotADuration {}

impl Duration {
    pub fn parse(&self) -> Result<SignedDuration, NotADuration> {
        read(&self.0).ok_or_else(|| NotADuration {
            text: self.0.clone(),
        })
    }
}

fn read(text: &str) -> Option<SignedDuration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut nanos: i128 = 0;
    loop {
        let (part, after) = part(rest)?;
        nanos = nanos.checked_add(part)?;
        rest = after;
        if rest.is_empty() {
            return i64::try_from(sign * nanos)
                .ok()
                .map(SignedDuration::from_nanos);
        }
    }
}

/// The first number with its unit, in nanoseconds, and what comes after.
fn part(text: &str) -> Option<(i128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MAX_DIGITS || fraction.contains('.') {
        return None;
    }
    let unit_end = rest
        .find(|c: char| c.is_ascii_digit() || c == '.')
        .unwrap_or(rest.len());
    let (unit, after) = rest.split_at(unit_end);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let divisor = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value: i128 = digits.parse().ok()?;
    Some((value.checked_mul(*scale)? / divisor, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> i128 {
        let parsed = Duration(text.to_owned()).parse();
        parsed.expect(text).as_nanos()
    }

    #[test]
    fn durations_are_read() {
        for (text, expected) in [
            ("0", 0),
            ("0s", 0),
            ("90s", 90_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("150ms", 150_000_000),
            ("2\u{b5}s", 2_000),
            ("2us", 2_000),
            (".5s", 500_000_000),
            ("-1m", -60_000_000_000),
            ("+168h0m0s", 604_800_000_000_000),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn errors_show_the_invalid_text() {
        for text in [
            "",
            "5",
            "s",
            "1d",
            "1 h",
            "1h 5m",
            "1.2.3s",
            "--1s",
            "1e3s",
            "9999999999h",
        ] {
            let error = Duration(text.to_owned()).parse().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn text_is_preserved() {
        let read: Duration = serde_json::from_str("\"1h0m0s\"").expect("reads");
        assert_eq!(serde_json::to_string(&read).expect("writes"), "\"1h0m0s\"");
    }
}
