//! Factors that are written as quantities.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::quantity::Amount;

/// The range of a factor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    /// Above 0, up to 1.
    UnitExclusive,
    /// From 0 to 1.
    UnitInclusive,
    /// 1 and above.
    AtLeastOne,
}

/// Why a factor is invalid: out of range, or with more than three decimals.
pub(super) fn problem(number: &Quantity, range: Range) -> Option<String> {
    let amount = match Amount::parse(number) {
        Ok(amount) => amount,
        Err(error) => return Some(error.to_string()),
    };
    let one = Amount::of(1);
    let (is_in_range, wanted) = match range {
        Range::UnitExclusive => (
            amount > Amount::ZERO && amount <= one,
            "above 0 and at most 1",
        ),
        Range::UnitInclusive => (amount >= Amount::ZERO && amount <= one, "from 0 to 1"),
        Range::AtLeastOne => (amount >= one, "1 or more"),
    };
    let is_coarse = amount.times(1_000).is_whole();
    (!is_in_range || !is_coarse)
        .then(|| format!("{} must be {wanted}, with at most three decimals", number.0))
}
