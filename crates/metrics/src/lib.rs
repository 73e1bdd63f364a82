//! Metrics: every crate declares its own in one table, and an endpoint renders tables as text for
//! Prometheus.
//!
//! - [`table!`] declares the metrics of a crate as `static` rows and collects them in a [`Table`];
//! - [`Counter`], [`Gauge`] and [`Histogram`] hold the values, one series per set of label values;
//! - [`Objects`] holds a value for each object of a kind, under the names that KubeVirt has for such metrics;
//! - [`render`] writes the text exposition format 0.0.4, [`CONTENT_TYPE`] is its media type;
//! - [`PROCESS`] is the table of the process itself;
//! - [`page`] writes the reference page, [`problems`] checks names, labels and help texts.
//!
//! **Invariants**: a metric has at most [`MAX_SERIES`] series, further label values are counted as
//! `other`; recording a value neither fails nor waits for I/O. Label values come from fixed sets:
//! never names of objects or users. Only [`Objects`] have names of objects, and at most [`MAX_OBJECTS`] of them.

mod objects;
mod page;
mod process;
mod row;
mod rules;
mod series;
mod table;
mod text;

pub use objects::{MAX_OBJECTS, Objects};
pub use page::page;
pub use process::PROCESS;
pub use row::{Counter, Gauge, Held, Histogram, LONG_SECONDS, SECONDS};
pub use rules::problems;
pub use series::{MAX_SERIES, Number};
pub use table::{Description, Kind, Metric, Table};
pub use text::{CONTENT_TYPE, render};

#[cfg(test)]
mod tests;
