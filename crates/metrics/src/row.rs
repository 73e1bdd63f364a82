//! The three types of metrics.

use std::{fmt::Write as _, time::Duration};

use crate::{
    series::{Family, Number},
    table::{Description, Kind, Metric},
    text::{LabelSet, sample},
};

/// Upper bounds of the buckets of durations, in seconds.
pub const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

/// Upper bounds of the buckets of durations that may be an hour, in seconds.
pub const LONG_SECONDS: [f64; 18] = [
    0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0,
    1200.0, 1800.0, 3600.0,
];

/// A number of events since the process started.
#[derive(Debug)]
pub struct Counter<const N: usize> {
    description: Description,
    values: Family<N, u64>,
}

impl<const N: usize> Counter<N> {
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str; N],
    ) -> Self {
        Self {
            description: describe(name, help, Kind::Counter, labels),
            values: Family::new(),
        }
    }

    pub fn increment(&self, labels: [&str; N]) {
        self.add(labels, 1);
    }

    pub fn add(&self, labels: [&str; N], count: u64) {
        self.values
            .update(labels, || 0, |value| *value = value.saturating_add(count));
    }
}

impl<const N: usize> Metric for Counter<N> {
    fn description(&self) -> Description {
        self.description
    }

    fn write_samples(&self, text: &mut String) {
        let Description { name, labels, .. } = self.description;
        self.values
            .for_each(|values, count| sample(text, name, LabelSet::new(labels, values), count));
    }
}

/// A value that goes up and down.
#[derive(Debug)]
pub struct Gauge<const N: usize> {
    description: Description,
    values: Family<N, Number>,
}

impl<const N: usize> Gauge<N> {
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str; N],
    ) -> Self {
        Self {
            description: describe(name, help, Kind::Gauge, labels),
            values: Family::new(),
        }
    }

    pub fn set(&self, labels: [&str; N], value: impl Into<Number>) {
        let new = value.into();
        self.values.update(labels, || new, |value| *value = new);
    }

    /// Adds one now and takes it away when the returned value is dropped.
    #[must_use]
    pub fn hold(&'static self, labels: [&str; N]) -> Held {
        self.change(labels, 1);
        let labels = labels.map(Box::<str>::from);
        Held(Some(Box::new(move || {
            self.change(labels.each_ref().map(AsRef::as_ref), -1);
        })))
    }

    /// Adds a number, which may be negative.
    pub fn change(&self, labels: [&str; N], by: i64) {
        self.values.update(
            labels,
            || Number::Integer(0),
            |value| {
                if let Number::Integer(value) = value {
                    *value = value.saturating_add(by);
                }
            },
        );
    }

    /// Removes all series, before the current ones are set.
    pub fn clear(&self) {
        self.values.clear();
    }
}

impl<const N: usize> Metric for Gauge<N> {
    fn description(&self) -> Description {
        self.description
    }

    fn write_samples(&self, text: &mut String) {
        let Description { name, labels, .. } = self.description;
        self.values
            .for_each(|values, value| sample(text, name, LabelSet::new(labels, values), value));
    }
}

/// One unit of a [`Gauge`]: see [`Gauge::hold`].
pub struct Held(Option<Box<dyn FnOnce() + Send + Sync>>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
    }
}

/// Durations, counted in the buckets of [`SECONDS`] or [`LONG_SECONDS`].
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    description: Description,
    bounds: &'static [f64],
    values: Family<N, Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    /// Not cumulative.
    counts: Vec<u64>,
    count: u64,
    sum: Duration,
}

impl<const N: usize> Histogram<N> {
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str; N],
    ) -> Self {
        Self {
            description: describe(name, help, Kind::Histogram, labels),
            bounds: &SECONDS,
            values: Family::new(),
        }
    }

    /// The same with the buckets of [`LONG_SECONDS`].
    pub const fn long(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str; N],
    ) -> Self {
        Self {
            description: describe(name, help, Kind::Histogram, labels),
            bounds: &LONG_SECONDS,
            values: Family::new(),
        }
    }

    pub fn observe(&self, labels: [&str; N], duration: Duration) {
        self.values.update(labels, Buckets::default, |buckets| {
            let seconds = duration.as_secs_f64();
            let fitting = self.bounds.iter().position(|bound| seconds <= *bound);
            buckets.counts.resize(self.bounds.len(), 0);
            if let Some(count) = fitting.and_then(|index| buckets.counts.get_mut(index)) {
                *count += 1;
            }
            buckets.count += 1;
            buckets.sum = buckets.sum.saturating_add(duration);
        });
    }
}

impl<const N: usize> Metric for Histogram<N> {
    fn description(&self) -> Description {
        self.description
    }

    fn write_samples(&self, text: &mut String) {
        let Description { name, labels, .. } = self.description;
        let (bucket, sum, count) = (
            format!("{name}_bucket"),
            format!("{name}_sum"),
            format!("{name}_count"),
        );
        let mut bound_text = String::new();
        self.values.for_each(|values, buckets| {
            let set = LabelSet::new(labels, values);
            let mut total = 0;
            for (bound, in_bucket) in self.bounds.iter().zip(&buckets.counts) {
                total += in_bucket;
                bound_text.clear();
                // Writing to a string cannot fail.
                let _ok = write!(bound_text, "{bound}");
                sample(text, &bucket, set.up_to(&bound_text), total);
            }
            sample(text, &bucket, set.up_to("+Inf"), buckets.count);
            sample(text, &sum, set, Number::from(buckets.sum));
            sample(text, &count, set, buckets.count);
        });
    }
}

const fn describe(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
) -> Description {
    Description {
        name,
        help,
        kind,
        labels,
    }
}
