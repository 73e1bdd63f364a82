//! Numbers that are written as quantities and mean plain factors.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::quantity::Amount;

/// What a factor may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    /// Above 0, up to 1.
    Share,
    /// From 0 to 1.
    Decay,
    /// 1 and above.
    Factor,
}

/// What is wrong with a factor, if anything: outside its range, or finer than a thousandth.
pub(super) fn fault(number: &Quantity, range: Range) -> Option<String> {
    let amount = match Amount::parse(number) {
        Ok(amount) => amount,
        Err(error) => return Some(error.to_string()),
    };
    let one = Amount::of(1);
    let (fits, wanted) = match range {
        Range::Share => (
            amount > Amount::ZERO && amount <= one,
            "above 0 and at most 1",
        ),
        Range::Decay => (amount >= Amount::ZERO && amount <= one, "from 0 to 1"),
        Range::Factor => (amount >= one, "1 or more"),
    };
    let is_coarse = amount.times(1_000).is_whole();
    (!fits || !is_coarse)
        .then(|| format!("{} must be {wanted}, with at most three decimals", number.0))
}
