//! Arithmetic on Kubernetes quantities (`128Mi`, `1.5`, `100m`), exact down to the billionth.
//!
//! Parsing, comparison, sums and formatting only. Invariant: hostile text neither panics nor
//! overflows. Out of scope: units; callers decide whether an amount counts bytes or CPUs.

mod notation;
mod parse;
mod units;

#[cfg(test)]
mod tests;

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub use notation::{Notation, Written};
use units::{BINARY, DECIMAL, NANO, div_ceil};

/// A quantity as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    nanos: i128,
}

/// The text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAQuantity {
    text: String,
}

impl fmt::Display for NotAQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a quantity; write a number such as 2, 500m, 128Mi or 2G",
            self.text
        )
    }
}

impl std::error::Error for NotAQuantity {}

impl Amount {
    pub const ZERO: Self = Self { nanos: 0 };
    pub const ONE: Self = Self { nanos: NANO };

    pub fn parse(quantity: &Quantity) -> Result<Self, NotAQuantity> {
        Self::parse_text(&quantity.0)
    }

    pub fn parse_text(text: &str) -> Result<Self, NotAQuantity> {
        parse::nanos(text)
            .map(|nanos| Self { nanos })
            .ok_or_else(|| NotAQuantity {
                text: text.to_owned(),
            })
    }

    /// A whole number, e.g. of bytes or CPUs.
    pub fn of(units: u64) -> Self {
        Self {
            nanos: i128::from(units) * NANO,
        }
    }

    /// In whole units, rounded up; negative amounts become zero, too large ones the maximum.
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
    pub fn plus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
        }
    }

    /// The difference, which may be negative.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_sub(other.nanos),
        }
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

    /// In whole units with the largest binary suffix that is exact, as for memory: `512Mi`.
    pub fn to_binary(self) -> Quantity {
        let units = self.units();
        let (name, shift) = BINARY
            .into_iter()
            .find(|(_, shift)| units != 0 && units.trailing_zeros() >= *shift)
            .unwrap_or(("", 0));
        Quantity(format!("{}{name}", units >> shift))
    }
}

/// The shortest exact form: with a binary suffix if possible, else with a decimal one.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let binary = BINARY
            .into_iter()
            .map(|(name, shift)| (name, NANO << shift));
        for (name, scale) in binary.chain(DECIMAL) {
            if self.nanos % scale == 0 {
                return write!(f, "{}{name}", self.nanos / scale);
            }
        }
        Ok(())
    }
}

fn saturating(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}
