//! Arithmetic on Kubernetes quantities (`128Mi`, `1.5`, `100m`), exact down to the billionth.
//!
//! Reading and writing only; what a number means is for others to say.

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const NANO: i128 = 1_000_000_000;
/// More digits than this say nothing and could overflow.
const MAX_DIGITS: usize = 27;

/// Suffixes and what they multiply by, in billionths.
const SUFFIXES: &[(&str, i128)] = &[
    ("Ki", NANO << 10),
    ("Mi", NANO << 20),
    ("Gi", NANO << 30),
    ("Ti", NANO << 40),
    ("Pi", NANO << 50),
    ("Ei", NANO << 60),
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("k", NANO * 1_000),
    ("M", NANO * 1_000_000),
    ("G", NANO * 1_000_000_000),
    ("T", NANO * 1_000_000_000_000),
    ("P", NANO * 1_000_000_000_000_000),
    ("E", NANO * 1_000_000_000_000_000_000),
];

/// A quantity as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    nanos: i128,
}

/// The text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAQuantity {
    text: String,
}

impl fmt::Display for NotAQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no quantity; write a number such as 2, 500m, 128Mi or 2G",
            self.text
        )
    }
}

impl std::error::Error for NotAQuantity {}

impl Amount {
    pub const ZERO: Self = Self { nanos: 0 };

    pub fn parse(quantity: &Quantity) -> Result<Self, NotAQuantity> {
        read(&quantity.0)
            .map(|nanos| Self { nanos })
            .ok_or_else(|| NotAQuantity {
                text: quantity.0.clone(),
            })
    }

    /// A whole number: of bytes, of CPUs.
    pub fn of(units: u64) -> Self {
        Self {
            nanos: i128::from(units) * NANO,
        }
    }

    /// In whole units, rounded up; negative amounts count as zero, too large ones as the largest.
    pub fn units(self) -> u64 {
        saturating(div_ceil(self.nanos, NANO))
    }

    /// In thousandths, rounded up: CPU time.
    pub fn millis(self) -> u64 {
        saturating(div_ceil(self.nanos, NANO / 1_000))
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        Self {
            nanos: self.nanos.saturating_mul(i128::from(factor)),
        }
    }

    /// Whether the amount is a multiple of `step` units.
    pub fn is_multiple_of(self, step: u64) -> bool {
        let step = i128::from(step) * NANO;
        step != 0 && self.nanos % step == 0
    }

    /// Shortest text with a binary suffix, as for memory: `512Mi`.
    pub fn to_binary(self) -> Quantity {
        let units = self.units();
        let (name, shift) = [
            ("Ei", 60),
            ("Pi", 50),
            ("Ti", 40),
            ("Gi", 30),
            ("Mi", 20),
            ("Ki", 10),
        ]
        .into_iter()
        .find(|(_, shift)| units != 0 && units.trailing_zeros() >= *shift)
        .unwrap_or(("", 0));
        Quantity(format!("{}{name}", units >> shift))
    }
}

fn read(text: &str) -> Option<i128> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MAX_DIGITS || fraction.contains('.') {
        return None;
    }
    let mantissa: i128 = digits.parse().ok()?;
    let divisor = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = mantissa.checked_mul(scale(suffix)?)?;
    Some(sign * div_ceil(scaled, divisor))
}

/// What a suffix multiplies by, in billionths.
fn scale(suffix: &str) -> Option<i128> {
    if suffix.is_empty() {
        return Some(NANO);
    }
    if let Some((_, scale)) = SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some(*scale);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = u32::try_from(exponent.checked_add(9)?).ok()?;
    10_i128.checked_pow(power).filter(|_| power <= 27)
}

fn div_ceil(value: i128, by: i128) -> i128 {
    let down = value.div_euclid(by);
    if value.rem_euclid(by) == 0 {
        down
    } else {
        down + 1
    }
}

fn saturating(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(&Quantity(text.to_owned())).expect(text)
    }

    #[test]
    fn quantities_are_read() {
        for (text, units, millis) in [
            ("0", 0, 0),
            ("2", 2, 2_000),
            ("1.5", 2, 1_500),
            ("100m", 1, 100),
            ("128Mi", 128 << 20, (128 << 20) * 1_000),
            ("1.5Gi", 3 << 29, (3 << 29) * 1_000),
            ("1G", 1_000_000_000, 1_000_000_000_000),
            ("1e3", 1_000, 1_000_000),
            ("2E2", 200, 200_000),
            ("+.5", 1, 500),
            ("-1", 0, 0),
        ] {
            assert_eq!(
                (amount(text).units(), amount(text).millis()),
                (units, millis),
                "{text}"
            );
        }
        assert!(amount("-1").is_negative());
        assert!(!amount("1500m").is_whole());
    }

    #[test]
    fn nonsense_is_refused_with_the_text_shown() {
        for text in [
            "", "Mi", "1.2.3", "12 Mi", "1mi", "0x10", "1e99", "--1", "e3",
        ] {
            let error = Amount::parse(&Quantity(text.to_owned())).expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn amounts_are_written_with_the_largest_suffix_that_fits() {
        for (text, written) in [
            ("512Mi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1000", "1000"),
            ("0", "0"),
            ("1536Mi", "1536Mi"),
        ] {
            assert_eq!(amount(text).to_binary().0, written);
        }
    }
}
