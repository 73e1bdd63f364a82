//! The values of a metric: one series per set of label values.

use std::{fmt, time::Duration};

use parking_lot::Mutex;

/// Beyond that, values are recorded under the label value `other`.
pub const MAX_SERIES: usize = 1000;
const OTHER: &str = "other";

/// A value as it is rendered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Integer(i64),
    Real(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
        }
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<Duration> for Number {
    fn from(value: Duration) -> Self {
        Self::Real(value.as_secs_f64())
    }
}

/// In the order of the label values. There are few, and a lookup allocates nothing.
#[derive(Debug)]
pub(crate) struct Family<const N: usize, V>(Mutex<Vec<([Box<str>; N], V)>>);

impl<const N: usize, V> Family<N, V> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Changes the value of a series, which is created if need be.
    pub(crate) fn update(
        &self,
        labels: [&str; N],
        create: impl Fn() -> V,
        change: impl FnOnce(&mut V),
    ) {
        let mut all = self.0.lock();
        let find = |all: &Vec<([Box<str>; N], V)>, labels: [&str; N]| {
            all.binary_search_by(|(key, _)| key.iter().map(AsRef::as_ref).cmp(labels))
        };
        let mut found = find(&all, labels);
        let mut key = labels;
        if found.is_err() && all.len() >= MAX_SERIES {
            key = [OTHER; N];
            found = find(&all, key);
        }
        let index = found.unwrap_or_else(|index| {
            all.insert(index, (key.map(Box::from), create()));
            index
        });
        if let Some((_, value)) = all.get_mut(index) {
            change(value);
        }
    }

    pub(crate) fn for_each(&self, mut visit: impl FnMut(&[Box<str>; N], &V)) {
        for (labels, value) in &*self.0.lock() {
            visit(labels, value);
        }
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}
