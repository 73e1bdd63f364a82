//! Limit ranges: defaults that follow from other values, and their order.

use apimachinery::{Violation, names};
use quantity::{Amount, Written};
use serde_json::{Map, Value};

use super::{
    Strategy,
    amounts::{self, written},
};

pub(crate) const RANGE: Strategy = Strategy {
    default,
    validate,
    ..Strategy::PLAIN
};

const CONTAINER: &str = "Container";
const POD: &str = "Pod";
const CLAIM: &str = "PersistentVolumeClaim";

const REQUEST: &str = "defaultRequest";

/// The parts of an item that have amounts.
const PARTS: [&str; 5] = ["default", REQUEST, "max", "maxLimitRequestRatio", "min"];
/// Resources of containers without a domain; and huge pages.
const OF_CONTAINERS: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

fn default(range: &mut Value) {
    for item in range["spec"]["limits"].as_array_mut().into_iter().flatten() {
        for part in PARTS {
            amounts::as_text(item.get_mut(part));
        }
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

fn validate(live: Option<&Value>, range: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if live.is_some_and(|live| live["spec"] == range["spec"]) {
        return wrong;
    }
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
        for part in PARTS {
            let path = format!("{at}.{part}");
            wrong.extend(amounts::check(&item[part], &path));
            wrong.extend(check_names(&item[part], kind, &path));
        }
        check_item(&at, item, kind, &mut wrong);
        check_ratios(&at, item, &mut wrong);
        check_whole(&at, item, kind, &mut wrong);
    }
    wrong
}

fn check_names(amounts: &Value, kind: &str, path: &str) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (name, _) in amounts.as_object().into_iter().flatten() {
        let field = format!("{path}[{name}]");
        let unqualified = names::qualified(name).into_iter();
        wrong.extend(unqualified.map(|why| Violation::invalid(field.clone(), name.as_str(), why)));
        let is_known = name.contains('/')
            || name.starts_with("hugepages-")
            || OF_CONTAINERS.contains(&name.as_str());
        if !is_known && [CONTAINER, POD].contains(&kind) {
            let why = "must be a standard resource for containers";
            wrong.push(Violation::invalid(field, name.as_str(), why));
        }
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
    // The first part of each row may not be greater than the second; the third is the field to blame. Messages call
    // the first two by the names at the end.
    for (lower, upper, blamed, [lower_name, upper_name]) in [
        ("min", "max", "min", ["min", "max"]),
        ("min", REQUEST, REQUEST, ["min", "default request"]),
        (REQUEST, "max", REQUEST, ["default request", "max"]),
        (
            REQUEST,
            "default",
            REQUEST,
            ["default request", "default limit"],
        ),
        ("min", "default", "default", ["min", "default"]),
        ("default", "max", "default", ["default", "max"]),
    ] {
        for (name, least, most) in both(item, lower, upper) {
            if least.amount > most.amount {
                let found = item[blamed][name].clone();
                let why =
                    format!("{lower_name} value {least} is greater than {upper_name} value {most}");
                let field = format!("{at}.{blamed}[{name}]");
                wrong.push(Violation::invalid(field, found, why));
            }
        }
    }
}

fn check_ratios(at: &str, item: &Value, wrong: &mut Vec<Violation>) {
    let ratios = item["maxLimitRequestRatio"].as_object();
    for (name, value) in ratios.into_iter().flatten() {
        let Some(ratio) = written(value) else {
            continue;
        };
        let field = format!("{at}.maxLimitRequestRatio[{name}]");
        if ratio.amount < Amount::ONE {
            let why = format!("ratio {ratio} is less than 1");
            wrong.push(Violation::invalid(field.clone(), value.clone(), why));
        }
        let [min, max] = ["min", "max"].map(|part| {
            let bound = written(&item[part][name]);
            bound.map(|bound| bound.amount)
        });
        let (Some(min), Some(max)) = (min, max) else {
            continue;
        };
        if let Some(most) = exceeded_ratio(max, min, ratio.amount) {
            let why = format!("ratio {ratio} is greater than max/min = {most}");
            wrong.push(Violation::invalid(field, value.clone(), why));
        }
    }
}

/// The quotient, as text, if the ratio is greater.
fn exceeded_ratio(max: Amount, min: Amount, ratio: Amount) -> Option<String> {
    let [max, min, ratio] = [max, min, ratio].map(|amount| u128::from(amount.millis()));
    // In thousandths, both sides. Nothing is greater than a quotient by zero.
    (min > 0 && ratio * min > max * 1000).then(|| quotient(max, min))
}

/// With six digits behind the point; `divisor` is not zero.
pub(crate) fn quotient(dividend: u128, divisor: u128) -> String {
    let millionths = (dividend * 1_000_000 + divisor / 2) / divisor;
    let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
    format!("{whole}.{rest:06}")
}

/// A limit of what is given whole is the request.
fn check_whole(at: &str, item: &Value, kind: &str, wrong: &mut Vec<Violation>) {
    for (name, request, limit) in both(item, "defaultRequest", "default") {
        if request.amount != limit.amount && !amounts::may_be_overcommitted(name) {
            let found = item["defaultRequest"][name].clone();
            let why = format!(
                "default value {limit} must equal to defaultRequest value {request} in {kind}"
            );
            let field = format!("{at}.defaultRequest[{name}]");
            wrong.push(Violation::invalid(field, found, why));
        }
    }
}

/// The resources that both parts name.
fn both<'a>(item: &'a Value, one: &str, other: &str) -> Vec<(&'a str, Written, Written)> {
    let first = item[one].as_object().into_iter().flatten();
    let pairs = first.filter_map(|(name, value)| {
        Some((name.as_str(), written(value)?, written(&item[other][name])?))
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
            // As text, like everywhere.
            (
                json!({"default": {"cpu": 2}}),
                json!({"cpu": "2"}),
                json!({"cpu": "2"}),
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
                    assert_eq!(found["defaultRequest"], before["defaultRequest"]);
                    assert_eq!(found["max"], before["max"]);
                }
            }
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
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
            (
                vec![item("Container", json!({"max": {"cpu": "much"}}))],
                vec!["spec.limits[0].max[cpu]"],
            ),
            (
                vec![item(
                    "Pod",
                    json!({"max": {"storage": "1", "a.io/x": "1", "hugepages-2Mi": "2Mi"}}),
                )],
                vec!["spec.limits[0].max[storage]"],
            ),
            (
                vec![item(
                    "Container",
                    json!({"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}),
                )],
                vec!["spec.limits[0].maxLimitRequestRatio[cpu]"],
            ),
            (
                vec![item(
                    "Container",
                    json!({"min": {"cpu": "0"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}),
                )],
                vec![],
            ),
            (
                vec![item(
                    "Container",
                    json!({"defaultRequest": {"a.io/x": "1"}, "default": {"a.io/x": "2"}}),
                )],
                vec!["spec.limits[0].defaultRequest[a.io/x]"],
            ),
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
