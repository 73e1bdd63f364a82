//! Events: fields that are always visible.

use serde_json::{Value, json};

use super::{Strategy, fields::fill};

pub(crate) const EVENT: Strategy = Strategy {
    populate: |event, _| fill_reporter(event),
    ..Strategy::PLAIN
};

/// Fills in the reporter and times of an event.
fn fill_reporter(event: &mut Value) {
    fill(event, "source", json!({}));
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        fill(event, field, Value::Null);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        fill(event, field, "");
    }
}
