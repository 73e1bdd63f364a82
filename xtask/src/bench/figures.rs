//! Figures and statistics of measurements.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

/// One measured number.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

impl Figure {
    pub(super) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
        }
    }
}

/// Parses lines of name, tab, value, tab, unit.
pub(super) fn parse(text: &str, units: &[&'static str]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let [name, value, unit] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("{line:?} is not: name, tab, value, tab, unit");
        };
        let Some(unit) = units.iter().find(|known| **known == unit) else {
            bail!("{unit:?} is not a unit of this bench");
        };
        let value = value
            .parse()
            .with_context(|| format!("value of {line:?}"))?;
        figures.push(Figure::new(name, value, unit));
    }
    Ok(figures)
}

/// The value below or at which that share of the values lies; of none, nothing.
pub(super) fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let wanted = share * as_f64(sorted.len() as u64);
    let mut below = 0_u64;
    sorted.into_iter().find(|_| {
        below += 1;
        as_f64(below) >= wanted
    })
}

pub(super) fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

pub(super) fn maximum(values: &[f64]) -> Option<f64> {
    percentile(values, 1.0)
}

pub(super) fn mean(values: &[f64]) -> Option<f64> {
    let count = as_f64(values.len() as u64);
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and bytes far below 2^52"
)]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        for (values, share, expected) in [
            (&[][..], 0.5, None),
            (&[3.0][..], 0.5, Some(3.0)),
            (&[4.0, 1.0, 3.0, 2.0][..], 0.5, Some(2.0)),
            (&[5.0, 1.0, 3.0, 2.0, 4.0][..], 0.5, Some(3.0)),
            (&[5.0, 1.0, 3.0, 2.0, 4.0][..], 0.99, Some(5.0)),
            (&[5.0, 1.0][..], 1.0, Some(5.0)),
        ] {
            assert_eq!(percentile(values, share), expected, "{values:?} {share}");
        }
    }
}
