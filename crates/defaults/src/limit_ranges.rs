//! Default requests and limits of a namespace, from its limit ranges.
//!
//! The API server gives them to pods; a VMI gets them as well, so that its guest fits into the limits of its pod, or is
//! refused with the field's name.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{LimitRange, LimitRangeItem},
    apimachinery::pkg::api::resource::Quantity,
};
use kubevirt_api::domain::DomainSpec;

/// A VMI with requests and limits for both of them gets nothing.
const COMPLETE: [&str; 2] = ["cpu", "memory"];

type Resources = BTreeMap<String, Quantity>;

/// Adds what the domain does not have yet. Of several limit ranges, the first one counts; within one, the last item for
/// containers.
pub fn set_resources(domain: &mut DomainSpec, ranges: &[LimitRange]) {
    let given = domain.resources.clone().unwrap_or_default();
    if is_complete(&given.requests) && is_complete(&given.limits) {
        return;
    }
    let mut filled = given.clone();
    for range in ranges {
        let items = range.spec.iter().flat_map(|spec| &spec.limits);
        let items: Vec<_> = items.filter(|item| item.type_ == "Container").collect();
        add(&mut filled.limits, &items, |item| item.default.as_ref());
        add(&mut filled.requests, &items, |item| {
            item.default_request.as_ref()
        });
    }
    if filled != given {
        domain.resources = Some(filled);
    }
}

fn is_complete(resources: &Resources) -> bool {
    COMPLETE.iter().all(|name| resources.contains_key(*name))
}

fn add<'a>(
    into: &mut Resources,
    items: &[&'a LimitRangeItem],
    defaults: impl Fn(&'a LimitRangeItem) -> Option<&'a Resources>,
) {
    let all = items.iter().filter_map(|item| defaults(item)).flatten();
    let all: BTreeMap<&String, &Quantity> = all.collect();
    for (name, amount) in all {
        into.entry(name.clone()).or_insert_with(|| amount.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(resources: &Value, ranges: &[Value], expected: &Value) {
        let mut domain: DomainSpec =
            serde_json::from_value(json!({"devices": {}, "resources": resources})).unwrap();
        let range = |limits: &Value| -> LimitRange {
            serde_json::from_value(json!({"metadata": {}, "spec": {"limits": limits}})).unwrap()
        };
        let ranges: Vec<LimitRange> = ranges.iter().map(range).collect();
        set_resources(&mut domain, &ranges);
        let found = serde_json::to_value(&domain).unwrap();
        assert_eq!(found["resources"], *expected, "{resources}");
    }

    #[test]
    fn missing_requests_and_limits_are_those_of_the_namespace() {
        let ranges = [
            json!([
                {"type": "Pod", "max": {"cpu": "8"}},
                {
                    "type": "Container",
                    "default": {"memory": "256M", "cpu": "4"},
                    "defaultRequest": {"memory": "128M", "cpu": "1"},
                },
            ]),
            // The first one has these already.
            json!([{"type": "Container", "default": {"memory": "1G", "example.org/x": "1"}}]),
        ];
        let all = json!({
            "limits": {"cpu": "4", "memory": "256M", "example.org/x": "1"},
            "requests": {"cpu": "1", "memory": "128M"},
        });
        check(&Value::Null, &ranges, &all);
        check(&json!({}), &ranges, &all);
        check(
            &json!({"limits": {"memory": "64M"}, "requests": {"cpu": "2"}}),
            &ranges,
            &json!({
                "limits": {"cpu": "4", "memory": "64M", "example.org/x": "1"},
                "requests": {"cpu": "2", "memory": "128M"},
            }),
        );
        let complete = json!({
            "limits": {"cpu": "2", "memory": "64M"}, "requests": {"cpu": "500m", "memory": "32M"},
        });
        check(&complete, &ranges, &complete);
    }

    #[test]
    fn namespace_without_defaults_changes_nothing() {
        check(&Value::Null, &[], &Value::Null);
        let pods = [json!([{"type": "Pod", "default": {"cpu": "1"}}])];
        check(&Value::Null, &pods, &Value::Null);
        let given = json!({"requests": {"memory": "1Gi"}});
        check(&given, &[json!([])], &given);
    }
}
