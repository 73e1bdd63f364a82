//! Endpoint slices: defaults and validation.

use apimachinery::Violation;
use serde_json::{Value, json};

use super::super::{
    Strategy,
    fields::{each, fill, fill_absent},
};

pub(crate) const ENDPOINT_SLICE: Strategy = Strategy {
    default: default_slice,
    validate: validate_slice,
    null_fields: &["endpoints", "ports"],
    ..Strategy::PLAIN
};

fn default_slice(slice: &mut Value) {
    each(slice, "endpoints", |endpoint| {
        fill(endpoint, "conditions", json!({}));
    });
    each(slice, "ports", |port| {
        fill_absent(port, "name", "");
        fill_absent(port, "protocol", "TCP");
    });
}

fn validate_slice(live: Option<&Value>, slice: &Value) -> Vec<Violation> {
    const KINDS: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
    let mut wrong = Vec::new();
    let kind = slice["addressType"].as_str().unwrap_or_default();
    if kind.is_empty() {
        wrong.push(Violation::required("addressType", ""));
    } else if !KINDS.contains(&kind) {
        wrong.push(Violation::not_supported("addressType", kind, KINDS));
    }
    if live.is_some_and(|live| live["addressType"] != slice["addressType"]) {
        let why = "field is immutable";
        wrong.push(Violation::invalid("addressType", kind, why));
    }
    for (at, endpoint) in slice["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if endpoint["addresses"].as_array().is_none_or(Vec::is_empty) {
            let why = "must contain at least 1 address";
            wrong.push(Violation::required(
                format!("endpoints[{at}].addresses"),
                why,
            ));
        }
    }
    wrong
}
