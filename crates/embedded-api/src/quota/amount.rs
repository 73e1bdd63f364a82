//! Quantities as quotas add them up.

use std::fmt;

/// Thousandths, exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amount {
    thousandths: i128,
}

const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];
/// By powers of ten of a thousandth.
const DECIMAL: [(&str, u32); 8] = [
    ("m", 0),
    ("", 3),
    ("k", 6),
    ("M", 9),
    ("G", 12),
    ("T", 15),
    ("P", 18),
    ("E", 21),
];
/// Longer ones are no quantities.
const LONGEST: usize = 32;

impl Amount {
    pub(super) const ZERO: Self = Self { thousandths: 0 };
    pub(super) const ONE: Self = Self { thousandths: 1000 };

    /// Reads `500m`, `1.5Gi`, `2e3`; what is finer than a thousandth is rounded up.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
        let (number, suffix) = text.split_at(text.find(|c| !is_number(c)).unwrap_or(text.len()));
        let (numerator, denominator) = decimal(number)?;
        let binary = BINARY.iter().find(|(name, _)| *name == suffix);
        let factor = match binary {
            Some((_, shift)) => 1000_i128.checked_shl(*shift)?,
            None => 10_i128.checked_pow(exponent(suffix)?)?,
        };
        let product = numerator.checked_mul(factor)?;
        let rounded = product / denominator + i128::from(product % denominator > 0);
        Some(Self {
            thousandths: rounded,
        })
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            thousandths: self.thousandths.saturating_add(other.thousandths),
        }
    }
}

/// A number as a fraction.
fn decimal(text: &str) -> Option<(i128, i128)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.contains(['+', '-', '.']) || (whole.len() + part.len()) == 0 {
        return None;
    }
    let numerator = format!("{whole}{part}").parse().ok()?;
    let places = u32::try_from(part.len()).ok()?;
    Some((numerator, 10_i128.checked_pow(places)?))
}

fn exponent(suffix: &str) -> Option<u32> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some(*exponent);
    }
    let power = suffix.strip_prefix(['e', 'E'])?;
    power.parse::<u32>().ok()?.checked_add(3)
}

/// In the shortest way: binary where it comes out even and is more than a few.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.thousandths == 0 {
            return f.write_str("0");
        }
        for (name, shift) in BINARY.iter().rev() {
            let unit = 1000_i128 << shift;
            if self.thousandths % unit == 0 {
                return write!(f, "{}{name}", self.thousandths / unit);
            }
        }
        for (name, power) in DECIMAL.iter().rev() {
            let unit = 10_i128.pow(*power);
            if self.thousandths % unit == 0 {
                return write!(f, "{}{name}", self.thousandths / unit);
            }
        }
        write!(f, "{}m", self.thousandths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_added_and_shown() {
        for (text, shown) in [
            ("0", "0"),
            ("1", "1"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1.5", "1500m"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("2e3", "2k"),
            ("5G", "5G"),
            ("0.0001", "1m"),
        ] {
            let amount = Amount::parse(text).expect(text);
            assert_eq!(amount.to_string(), shown, "{text}");
        }
        let sum = ["128Mi", "64Mi"].map(|text| Amount::parse(text).expect(text));
        assert_eq!(sum[0].plus(sum[1]).to_string(), "192Mi");
        for wrong in [
            "",
            "x",
            "1x",
            "1.2.3",
            "--1",
            "1e",
            "1e99",
            "9".repeat(40).as_str(),
        ] {
            assert_eq!(Amount::parse(wrong), None, "{wrong}");
        }
    }
}
