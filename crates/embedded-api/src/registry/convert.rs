//! Conversion of an object to another version without a webhook.
//!
//! Versions of custom kinds then differ in their label only. Events of the two groups share their
//! objects and differ in the names of fields. Invariant: a round trip loses nothing.

use serde_json::{Map, Value};

/// The `v1` name of an event's field, and its `events.k8s.io` name.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

const NEW_EVENTS: &str = "events.k8s.io/v1";

/// Converts `object` to `api_version`.
pub(crate) fn to_version(object: &mut Value, api_version: &str) {
    let from = object["apiVersion"].as_str().unwrap_or_default();
    if from == api_version || !object.is_object() {
        return;
    }
    if api_version == NEW_EVENTS {
        rename(object, |field| pick(field, |(old, new)| (old, new)));
    } else if from == NEW_EVENTS {
        rename(object, |field| pick(field, |(old, new)| (new, old)));
    }
    object["apiVersion"] = api_version.into();
}

fn pick(
    field: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Option<&'static str> {
    EVENT_FIELDS
        .into_iter()
        .map(direction)
        .find(|(from, _)| *from == field)
        .map(|(_, to)| to)
}

fn rename(object: &mut Value, name: impl Fn(&str) -> Option<&'static str>) {
    let Value::Object(fields) = object else {
        return;
    };
    let renamed: Map<String, Value> = std::mem::take(fields)
        .into_iter()
        .map(|(field, value)| (name(&field).map_or(field, ToOwned::to_owned), value))
        .collect();
    *fields = renamed;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_are_converted_and_back() {
        let old = json!({"apiVersion": "v1", "kind": "Event", "message": "m", "reason": "r",
                         "involvedObject": {"name": "x"}});
        let mut event = old.clone();
        to_version(&mut event, NEW_EVENTS);
        assert_eq!(event["note"], "m");
        assert_eq!(event["regarding"]["name"], "x");
        to_version(&mut event, "v1");
        assert_eq!(event, old);
    }
}
