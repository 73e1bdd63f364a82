//! Fractions as Go writes them: a whole number has no decimal point.

use serde::Serializer;

/// Up to here every whole number is exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
pub(crate) fn required<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let whole = (value.fract() == 0.0 && value.abs() < EXACT)
        .then(|| format!("{value:.0}").parse::<i64>().ok())
        .flatten();
    match whole {
        Some(whole) => serializer.serialize_i64(whole),
        None => serializer.serialize_f64(*value),
    }
}

#[expect(clippy::ref_option, reason = "serde hands over references")]
pub(crate) fn optional<S: Serializer>(
    value: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => required(value, serializer),
        None => serializer.serialize_none(),
    }
}
