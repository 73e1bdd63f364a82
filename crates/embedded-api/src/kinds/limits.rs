//! Limit ranges: defaults that follow from other values, and their order.

use apimachinery::{Violation, names};
use quantity::Amount;
use serde_json::{Map, Value};

use super::Strategy;

pub(crate) const RANGE: Strategy = Strategy {
    default,
    validate,
    ..Strategy::PLAIN
};

const CONTAINER: &str = "Container";
const POD: &str = "Pod";
const CLAIM: &str = "PersistentVolumeClaim";

fn default(range: &mut Value) {
    for item in range["spec"]["limits"].as_array_mut().into_iter().flatten() {
        if item["type"] == CONTAINER {
            default_item(item);
        }
    }
}

/// A container without a limit gets the maximum, and one without a request the default limit or the minimum.
fn default_item(item: &mut Value) {
    let part = |item: &Value, name: &str| item[name].as_object().cloned().unwrap_or_default();
    let mut limits = part(item, "default");
    add_missing(&mut limits, &part(item, "max"));
    let mut requests = part(item, "defaultRequest");
    add_missing(&mut requests, &limits);
    add_missing(&mut requests, &part(item, "min"));
    for (name, values) in [("default", limits), ("defaultRequest", requests)] {
        if !values.is_empty() {
            item[name] = Value::Object(values);
        }
    }
}

fn add_missing(values: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, value) in more {
        let slot = values.entry(name.clone()).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value.clone();
        }
    }
}

fn validate(_: Option<&Value>, range: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let mut types: Vec<&str> = Vec::new();
    let items = range["spec"]["limits"].as_array().into_iter().flatten();
    for (index, item) in items.enumerate() {
        let at = format!("spec.limits[{index}]");
        let kind = item["type"].as_str().unwrap_or_default();
        let of_type = format!("{at}.type");
        let unqualified = names::qualified(kind).into_iter();
        wrong.extend(unqualified.map(|why| Violation::invalid(of_type.clone(), kind, why)));
        if !kind.contains('/') && ![CONTAINER, POD, CLAIM].contains(&kind) {
            let why = "must be a standard limit type or fully qualified";
            wrong.push(Violation::invalid(of_type.clone(), kind, why));
        }
        if types.contains(&kind) {
            wrong.push(Violation::duplicate(of_type, kind));
        }
        types.push(kind);
        check_item(&at, item, kind, &mut wrong);
    }
    wrong
}

fn check_item(at: &str, item: &Value, kind: &str, wrong: &mut Vec<Violation>) {
    let is_given = |part: &str| item[part].as_object().is_some_and(|part| !part.is_empty());
    if kind == POD {
        for part in ["default", "defaultRequest"] {
            if is_given(part) {
                let why = "may not be specified when `type` is 'Pod'";
                wrong.push(Violation::forbidden(format!("{at}.{part}"), why));
            }
        }
    }
    let has_storage = |part: &str| !item[part]["storage"].is_null();
    if kind == CLAIM && !has_storage("min") && !has_storage("max") {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        wrong.push(Violation::required(format!("{at}.limits"), why));
    }
    // Of each pair, the first may not be greater than the second; the third is the field to blame, and the last is
    // what messages call the second.
    for (lower, upper, blamed, called) in [
        ("min", "max", "min", "max"),
        ("min", "defaultRequest", "defaultRequest", "default request"),
        ("defaultRequest", "max", "defaultRequest", "max"),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "default limit",
        ),
        ("min", "default", "default", "default"),
        ("default", "max", "default", "max"),
    ] {
        for (name, least, most) in both(item, lower, upper) {
            if least > most {
                let found = item[blamed][name].clone();
                let lower = if lower == "defaultRequest" {
                    "default request"
                } else {
                    lower
                };
                let why = format!("{lower} value {least} is greater than {called} value {most}");
                let field = format!("{at}.{blamed}[{name}]");
                wrong.push(Violation::invalid(field, found, why));
            }
        }
    }
    for (name, ratio) in item["maxLimitRequestRatio"]
        .as_object()
        .into_iter()
        .flatten()
    {
        if amount(ratio).is_some_and(|ratio| ratio < Amount::ONE) {
            let field = format!("{at}.maxLimitRequestRatio[{name}]");
            let why = format!("ratio {} is less than 1", text(ratio));
            wrong.push(Violation::invalid(field, ratio.clone(), why));
        }
    }
}

/// A quantity, which may be a number.
pub(crate) fn amount(value: &Value) -> Option<Amount> {
    match value {
        Value::String(text) => Amount::parse_text(text).ok(),
        Value::Number(number) => Amount::parse_text(&number.to_string()).ok(),
        _ => None,
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The resources that both parts name.
fn both<'a>(item: &'a Value, one: &str, other: &str) -> Vec<(&'a str, Amount, Amount)> {
    let first = item[one].as_object().into_iter().flatten();
    let pairs = first.filter_map(|(name, value)| {
        Some((name.as_str(), amount(value)?, amount(&item[other][name])?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_of_containers_follow_from_maximum_and_minimum() {
        for (item, limits, requests) in [
            (json!({}), json!(null), json!(null)),
            (
                json!({"max": {"cpu": "2"}}),
                json!({"cpu": "2"}),
                json!({"cpu": "2"}),
            ),
            (
                json!({"min": {"cpu": "1"}}),
                json!(null),
                json!({"cpu": "1"}),
            ),
            (
                json!({"min": {"cpu": "1"}, "max": {"cpu": "4", "memory": "1Gi"}, "default": {"cpu": "3"},
                       "defaultRequest": {"memory": "1Mi"}}),
                json!({"cpu": "3", "memory": "1Gi"}),
                json!({"cpu": "3", "memory": "1Mi"}),
            ),
        ] {
            for (kind, is_defaulted) in [("Container", true), ("Pod", false)] {
                let mut item = item.clone();
                item["type"] = json!(kind);
                let before = item.clone();
                let mut range = json!({"spec": {"limits": [item]}});
                default(&mut range);
                let found = &range["spec"]["limits"][0];
                if is_defaulted {
                    assert_eq!(found["default"], limits, "{before}");
                    assert_eq!(found["defaultRequest"], requests, "{before}");
                } else {
                    assert_eq!(*found, before);
                }
            }
        }
    }

    #[test]
    fn values_are_in_order() {
        let item = |kind: &str, rest: Value| {
            let mut item = rest;
            item["type"] = json!(kind);
            item
        };
        for (items, fields) in [
            (
                vec![item(
                    "Container",
                    json!({"min": {"cpu": "1"}, "max": {"cpu": "1"}}),
                )],
                vec![],
            ),
            (
                vec![item(
                    "Container",
                    json!({"min": {"cpu": "2"}, "max": {"cpu": "1"}}),
                )],
                vec!["spec.limits[0].min[cpu]"],
            ),
            (
                vec![item(
                    "Container",
                    json!({"defaultRequest": {"cpu": "2"}, "default": {"cpu": "1"}}),
                )],
                vec!["spec.limits[0].defaultRequest[cpu]"],
            ),
            (
                vec![item(
                    "Container",
                    json!({"default": {"cpu": "2"}, "max": {"cpu": "1"}}),
                )],
                vec!["spec.limits[0].default[cpu]"],
            ),
            (
                vec![item(
                    "Container",
                    json!({"maxLimitRequestRatio": {"cpu": "500m"}}),
                )],
                vec!["spec.limits[0].maxLimitRequestRatio[cpu]"],
            ),
            (
                vec![item(
                    "Pod",
                    json!({"default": {"cpu": "1"}, "max": {"memory": "1Gi"}}),
                )],
                vec!["spec.limits[0].default"],
            ),
            (
                vec![item("Pod", json!({})), item("Pod", json!({}))],
                vec!["spec.limits[1].type"],
            ),
            (vec![item("Other", json!({}))], vec!["spec.limits[0].type"]),
            (vec![item("example.com/other", json!({}))], vec![]),
            (
                vec![item(
                    "PersistentVolumeClaim",
                    json!({"max": {"storage": "1Gi"}}),
                )],
                vec![],
            ),
            (
                vec![item("PersistentVolumeClaim", json!({}))],
                vec!["spec.limits[0].limits"],
            ),
        ] {
            let range = json!({"spec": {"limits": items}});
            let wrong = validate(None, &range);
            let found: Vec<&str> = wrong.iter().map(|one| one.field.as_str()).collect();
            assert_eq!(found, fields, "{range}");
        }
    }
}
