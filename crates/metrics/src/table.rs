//! What a metric is, and the table of a crate's metrics.

use std::fmt;

/// The types of the exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// The fixed part of a metric.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
}

/// One row of a table.
pub trait Metric: fmt::Debug + Sync {
    fn description(&self) -> Description;

    /// Appends one line for each value.
    fn write_samples(&self, text: &mut String);
}

/// The metrics of one crate.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// The crate, and the second part of the metrics' names: `virt-api`.
    pub component: &'static str,
    pub metrics: &'static [&'static dyn Metric],
}

/// Declares the metrics of a crate and their table.
///
/// ```
/// metrics::table! {
///     pub METRICS of "virt-api":
///     counter REVIEWS["webhook", "result"] "ferrovirt_virt_api_reviews_total"
///         "Admission reviews.";
///     histogram REVIEW_SECONDS["webhook"] "ferrovirt_virt_api_review_duration_seconds"
///         "Duration of an admission review.";
/// }
/// REVIEWS.increment(["vm-validator", "allowed"]);
/// ```
///
/// Histograms are of seconds, with the buckets of [`SECONDS`](crate::SECONDS), those of the kind `long_histogram` with
/// [`LONG_SECONDS`](crate::LONG_SECONDS). `object_gauge` and `object_counter` are [`Objects`](crate::Objects).
#[macro_export]
macro_rules! table {
    ($visibility:vis $table:ident of $component:literal:
     $($kind:ident $row:ident [$($label:literal),*] $name:literal $help:literal;)+) => {
        $(
            #[doc = $help]
            pub(crate) static $row: $crate::table!(@type $kind $($label)*) =
                $crate::table!(@new $kind $name, $help, [$($label),*]);
        )+

        /// The metrics of this crate.
        $visibility static $table: $crate::Table = $crate::Table {
            component: $component,
            metrics: &[$(&$row),+],
        };
    };
    (@type counter $($label:literal)*) => { $crate::Counter<{ <[&str]>::len(&[$($label),*]) }> };
    (@type gauge $($label:literal)*) => { $crate::Gauge<{ <[&str]>::len(&[$($label),*]) }> };
    (@type histogram $($label:literal)*) => {
        $crate::Histogram<{ <[&str]>::len(&[$($label),*]) }>
    };
    (@type long_histogram $($label:literal)*) => {
        $crate::Histogram<{ <[&str]>::len(&[$($label),*]) }>
    };
    (@type object_gauge $($label:literal)*) => {
        $crate::Objects<{ <[&str]>::len(&[$($label),*]) }>
    };
    (@type object_counter $($label:literal)*) => {
        $crate::Objects<{ <[&str]>::len(&[$($label),*]) }>
    };
    (@new counter $name:literal, $help:literal, $labels:expr) => {
        $crate::Counter::new($name, $help, &$labels)
    };
    (@new gauge $name:literal, $help:literal, $labels:expr) => {
        $crate::Gauge::new($name, $help, &$labels)
    };
    (@new histogram $name:literal, $help:literal, $labels:expr) => {
        $crate::Histogram::new($name, $help, &$labels)
    };
    (@new long_histogram $name:literal, $help:literal, $labels:expr) => {
        $crate::Histogram::long($name, $help, &$labels)
    };
    (@new object_gauge $name:literal, $help:literal, $labels:expr) => {
        $crate::Objects::new($name, $help, ($crate::Kind::Gauge, &$labels))
    };
    (@new object_counter $name:literal, $help:literal, $labels:expr) => {
        $crate::Objects::new($name, $help, ($crate::Kind::Counter, &$labels))
    };
}
