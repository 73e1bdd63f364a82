//! Values of single objects, such as guests.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{
    series::Number,
    table::{Description, Kind, Metric},
    text::{LabelSet, sample},
};

/// Beyond that, further objects have no series.
pub const MAX_OBJECTS: usize = 10_000;

/// One value for each object that exists. The code that sets a value removes it with the object.
#[derive(Debug)]
pub struct Objects<const N: usize> {
    description: Description,
    values: Mutex<BTreeMap<[Box<str>; N], Number>>,
}

impl<const N: usize> Objects<N> {
    pub const fn new(
        name: &'static str,
        help: &'static str,
        (kind, labels): (Kind, &'static [&'static str; N]),
    ) -> Self {
        Self {
            description: Description {
                name,
                help,
                kind,
                labels,
            },
            values: Mutex::new(BTreeMap::new()),
        }
    }

    pub fn set(&self, labels: [&str; N], value: impl Into<Number>) {
        let mut all = self.values.lock();
        let labels = labels.map(Box::from);
        if all.len() < MAX_OBJECTS || all.contains_key(&labels) {
            all.insert(labels, value.into());
        }
    }

    /// Removes the series with such label values.
    pub fn remove(&self, is_of_object: impl Fn([&str; N]) -> bool) {
        self.values
            .lock()
            .retain(|labels, _| !is_of_object(labels.each_ref().map(AsRef::as_ref)));
    }
}

impl<const N: usize> Metric for Objects<N> {
    fn description(&self) -> Description {
        self.description
    }

    fn write_samples(&self, text: &mut String) {
        let Description { name, labels, .. } = self.description;
        for (values, value) in &*self.values.lock() {
            sample(text, name, LabelSet::new(labels, values), value);
        }
    }
}
