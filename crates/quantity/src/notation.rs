//! How a quantity is written. Kubernetes keeps it: `16G` and `1024` do not become binary.

use std::fmt;

use crate::{
    Amount, NotAQuantity,
    units::{BINARY, DECIMAL, NANO},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    Decimal,
    Binary,
}

/// An amount and its notation; displayed as Kubernetes does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub amount: Amount,
    pub notation: Notation,
}

impl Written {
    pub fn parse(text: &str) -> Result<Self, NotAQuantity> {
        let notation = if text.ends_with('i') {
            Notation::Binary
        } else {
            Notation::Decimal
        };
        Ok(Self {
            amount: Amount::parse_text(text)?,
            notation,
        })
    }
}

/// The largest suffix of the notation that is exact. Less than 1024 units are decimal, and so are parts of one.
impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.amount.nanos;
        if nanos == 0 {
            return f.write_str("0");
        }
        let is_large = nanos % NANO == 0 && nanos.unsigned_abs() >= 1024 * NANO.unsigned_abs();
        let (binary, decimal) = match self.notation {
            Notation::Binary if is_large => (&BINARY[..], &[("", NANO)][..]),
            _ => (&[][..], &DECIMAL[..]),
        };
        let binary = binary.iter().map(|(name, shift)| (*name, NANO << *shift));
        for (name, scale) in binary.chain(decimal.iter().copied()) {
            if nanos % scale == 0 {
                return write!(f, "{}{name}", nanos / scale);
            }
        }
        Ok(())
    }
}
