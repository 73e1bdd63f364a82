//! Parsing of a quantity into billionths.

use crate::units::{BINARY, DECIMAL, NANO, div_ceil};

/// More digits carry no information and could overflow.
const MAX_DIGITS: usize = 27;

/// The value in billionths, rounded up; `None` if the text is not a quantity.
pub(super) fn nanos(text: &str) -> Option<i128> {
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

/// The factor of a suffix or exponent, in billionths.
fn scale(suffix: &str) -> Option<i128> {
    if let Some((_, shift)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some(NANO << shift);
    }
    if let Some((_, scale)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some(*scale);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = u32::try_from(exponent.checked_add(9)?).ok()?;
    10_i128.checked_pow(power).filter(|_| power <= 27)
}
