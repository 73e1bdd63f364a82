//! Quantities of resources in objects: numbers become text, and what is no quantity is refused.

use apimachinery::Violation;
use quantity::Written;
use serde_json::{Map, Value};

/// Amounts may be written as numbers and are read back as strings.
pub(super) fn as_text(amounts: Option<&mut Value>) {
    let amounts = amounts.and_then(Value::as_object_mut);
    for amount in amounts.into_iter().flat_map(Map::values_mut) {
        if amount.is_number() {
            *amount = amount.to_string().into();
        }
    }
}

/// A quantity, which may be a number in objects that an earlier version stored.
pub(crate) fn written(value: &Value) -> Option<Written> {
    match value {
        Value::String(text) => Written::parse(text).ok(),
        Value::Number(number) => Written::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Refuses values that are no quantities. One that cannot be read would be without a limit.
pub(super) fn check(amounts: &Value, path: &str) -> Vec<Violation> {
    let amounts = amounts.as_object().into_iter().flatten();
    let bad = amounts.filter(|(_, value)| !value.is_null() && written(value).is_none());
    let why = "is not a quantity; write a number such as 2, 500m, 128Mi or 2G";
    bad.map(|(name, value)| Violation::invalid(format!("{path}[{name}]"), value.clone(), why))
        .collect()
}

/// Refuses amounts below zero.
fn check_sign(amounts: &Value, path: &str) -> Vec<Violation> {
    let amounts = amounts.as_object().into_iter().flatten();
    let negative =
        amounts.filter(|(_, value)| written(value).is_some_and(|one| one.amount.is_negative()));
    let why = "must be greater than or equal to 0";
    negative
        .map(|(name, value)| Violation::invalid(format!("{path}[{name}]"), value.clone(), why))
        .collect()
}

/// Checks the requests and limits of a container.
pub(super) fn check_resources(resources: &Value, path: &str) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for part in ["limits", "requests"] {
        let path = format!("{path}.{part}");
        wrong.extend(check(&resources[part], &path));
        wrong.extend(check_sign(&resources[part], &path));
    }
    let requests = resources["requests"].as_object().into_iter().flatten();
    for (name, request) in requests {
        let limit = written(&resources["limits"][name]);
        let (Some(request), Some(limit)) = (written(request), limit) else {
            continue;
        };
        let relation = if may_be_overcommitted(name) {
            (request.amount > limit.amount).then_some("less than or equal to")
        } else {
            (request.amount != limit.amount).then_some("equal to")
        };
        if let Some(relation) = relation {
            let why = format!("must be {relation} {name} limit of {limit}");
            let field = format!("{path}.requests");
            wrong.push(Violation::invalid(field, request.to_string(), why));
        }
    }
    wrong
}

/// Whether limits may be above requests. Devices and huge pages are given whole.
pub(super) fn may_be_overcommitted(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    is_native && !name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_of_a_container_are_in_order() {
        for (resources, expected) in [
            (json!({}), vec![]),
            (
                json!({"requests": {"cpu": "1", "memory": "1G"}, "limits": {"cpu": "1000m", "memory": "1Gi"}}),
                vec![],
            ),
            (
                json!({"requests": {"cpu": 2}, "limits": {"cpu": 3}}),
                vec![],
            ),
            (
                json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1024Mi"}}),
                vec![
                    "r.requests: Invalid value: \"2Gi\": must be less than or equal to memory limit of 1Gi",
                ],
            ),
            (
                json!({"requests": {"a.io/gpu": "1"}, "limits": {"a.io/gpu": "2"}}),
                vec!["r.requests: Invalid value: \"1\": must be equal to a.io/gpu limit of 2"],
            ),
            (
                json!({"requests": {"hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}),
                vec![
                    "r.requests: Invalid value: \"2Mi\": must be equal to hugepages-2Mi limit of 4Mi",
                ],
            ),
            (
                json!({"requests": {"memory": "much"}, "limits": {"cpu": "-1"}}),
                vec![
                    "r.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
                    "r.requests[memory]: Invalid value: \"much\": is not a quantity; write a number such as 2, 500m, \
                     128Mi or 2G",
                ],
            ),
        ] {
            let wrong = check_resources(&resources, "r");
            let found: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{resources}");
        }
    }
}
