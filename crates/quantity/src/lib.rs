//! Resource quantities as Kubernetes writes them: `100m`, `1.5`, `128Mi`, `2e3`.
//!
//! Pure. Values are exact (in billionths); rounding is always up, so that nothing gets less than
//! what was asked for. It must not know which quantities mean what.

use std::fmt;

const NANO: i128 = 1_000_000_000;
/// Far above any machine, far below what the arithmetic can hold.
const LARGEST: i128 = NANO << 63;

/// An amount in billionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {text:?} as a quantity: want a number with a suffix such as m, k, M, Gi")]
pub struct QuantityError {
    pub text: String,
}

impl Amount {
    pub const ZERO: Self = Self(0);

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse(text).ok_or_else(|| QuantityError {
            text: text.to_owned(),
        })
    }

    pub fn of_bytes(bytes: u64) -> Self {
        Self(i128::from(bytes) * NANO)
    }

    pub fn of_millis(millis: u64) -> Self {
        Self(i128::from(millis) * (NANO / 1000))
    }

    /// Whole units, rounded up; negative amounts are none.
    pub fn units(self) -> u64 {
        round_up(self.0, NANO)
    }

    /// Thousandths, rounded up; negative amounts are none.
    pub fn millis(self) -> u64 {
        round_up(self.0, NANO / 1000)
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0).min(LARGEST))
    }

    /// As memory is written: whole bytes with the largest power of 1024 that divides them.
    pub fn as_bytes(self) -> AsBytes {
        AsBytes(self.units())
    }

    /// As CPU is written: whole ones, else thousandths.
    pub fn as_cpu(self) -> AsCpu {
        AsCpu(self.millis())
    }
}

#[derive(Debug, Clone, Copy)]
pub struct AsBytes(u64);

impl fmt::Display for AsBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut suffix) = (self.0, "");
        for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
            if value == 0 || !value.is_multiple_of(1024) {
                break;
            }
            (value, suffix) = (value / 1024, next);
        }
        write!(f, "{value}{suffix}")
    }
}

#[derive(Debug, Clone, Copy)]
pub struct AsCpu(u64);

impl fmt::Display for AsCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) {
            write!(f, "{}", self.0 / 1000)
        } else {
            write!(f, "{}m", self.0)
        }
    }
}

fn parse(text: &str) -> Option<Amount> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (multiplier, divisor) = scale(suffix)?;
    // Digits past the thirtieth cannot matter within the largest amount.
    let digits = format!("{whole}{fraction}");
    if digits.len() > 30 {
        return None;
    }
    let value: i128 = digits.parse().ok()?;
    let divisor = divisor.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let scaled = exact(value, multiplier, divisor)?;
    let capped = scaled.min(LARGEST);
    Some(Amount(if negative { -capped } else { capped }))
}

/// `value * multiplier * NANO / divisor`, rounded up, capped instead of overflowing.
fn exact(value: i128, multiplier: i128, divisor: i128) -> Option<i128> {
    let scale = multiplier.checked_mul(NANO)?;
    if let Some(product) = value.checked_mul(scale) {
        return Some(product / divisor + i128::from(product % divisor != 0));
    }
    // Too large for one step: divide first, which is only inexact far above the cap.
    Some((value / divisor).checked_mul(scale).unwrap_or(LARGEST))
}

/// What a suffix multiplies by and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let pair = match suffix {
        "" => (1, 1),
        "n" => (1, NANO),
        "u" => (1, NANO / 1000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (NANO, 1),
        "T" => (NANO * 1000, 1),
        "P" => (NANO * 1_000_000, 1),
        "E" => (NANO * NANO, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs().min(18))?;
            if exponent.unsigned_abs() > 18 {
                return None;
            }
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    };
    Some(pair)
}

fn round_up(value: i128, unit: i128) -> u64 {
    let whole = value.div_euclid(unit) + i128::from(value.rem_euclid(unit) != 0);
    u64::try_from(whole.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn suffixes_and_exponents_are_read() {
        let cases = [
            ("0", 0),
            ("128Mi", 128 << 20),
            ("1.5Gi", 3 << 29),
            ("1G", 1_000_000_000),
            ("1e3", 1000),
            ("12E2", 1200),
            ("100m", 1),
            ("1001m", 2),
            ("-1", 0),
            ("+3k", 3000),
            (".5", 1),
            ("1Ei", 1 << 60),
        ];
        for (text, units) in cases {
            assert_eq!(Amount::parse(text).unwrap().units(), units, "{text}");
        }
        assert_eq!(Amount::parse("0.1").unwrap().millis(), 100);
        assert_eq!(Amount::parse("1n").unwrap().millis(), 1);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "Mi", "1mi", "1 Gi", "1..2", "1.2.3", "abc", "1e", "1e99", "--1", "0x10",
        ] {
            assert!(Amount::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_written_short() {
        let bytes = |n| Amount::of_bytes(n).as_bytes().to_string();
        assert_eq!(
            [bytes(0), bytes(1023), bytes(128 << 20)],
            ["0", "1023", "128Mi"]
        );
        let cpu = |n| Amount::of_millis(n).as_cpu().to_string();
        assert_eq!([cpu(100), cpu(2000), cpu(1500)], ["100m", "2", "1500m"]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[-+]?[0-9.]{0,40}[a-zA-Z0-9-]{0,4}") {
            let _outcome = Amount::parse(&text).is_ok();
        }

        #[test]
        fn written_bytes_read_back(bytes in 0_u64..1 << 62) {
            let amount = Amount::of_bytes(bytes);
            prop_assert_eq!(Amount::parse(&amount.as_bytes().to_string()), Ok(amount));
        }
    }
}
