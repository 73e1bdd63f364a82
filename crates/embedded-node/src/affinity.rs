//! Required node affinity of a pod. Pure.
//!
//! Preferences are ignored: with one node there is nothing to prefer.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};

/// Whether the pod's required node affinity matches the node.
pub(crate) fn admits(pod: &Pod, node: &Node) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|node| {
        node.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    required.is_none_or(|all| {
        all.node_selector_terms
            .iter()
            .any(|term| is_met(term, node))
    })
}

/// All requirements of a term must hold; an empty term matches no node.
fn is_met(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let label = |name: &str| labels.and_then(|all| all.get(name)).map(String::as_str);
    let field = |name: &str| match name {
        "metadata.name" => node.metadata.name.as_deref(),
        _ => None,
    };
    let mut expressions = term.match_expressions.iter().flatten().peekable();
    let mut fields = term.match_fields.iter().flatten().peekable();
    let is_not_empty = expressions.peek().is_some() || fields.peek().is_some();
    is_not_empty
        && expressions.all(|one| holds(one, label(&one.key)))
        && fields.all(|one| holds(one, field(&one.key)))
}

fn holds(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_among = |found: &str| values.iter().any(|value| value == found);
    // Both sides must be integers.
    let compared = || {
        let bound: i64 = values.first()?.parse().ok()?;
        let found: i64 = found?.parse().ok()?;
        Some(found.cmp(&bound))
    };
    match requirement.operator.as_str() {
        "In" => found.is_some_and(is_among),
        "NotIn" => !found.is_some_and(is_among),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn required_affinity_is_matched_as_by_kubernetes() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "here", "labels": {"zone": "a", "size": "8", "empty": ""}},
        }))
        .unwrap();
        let check = |terms: Value, expected: bool| {
            let required = json!({"nodeSelectorTerms": terms});
            let spec = json!({"containers": [], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required}}});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(admits(&pod, &node), expected, "{terms}");
        };
        let one = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        for (key, operator, values, expected) in [
            ("zone", "In", &["b", "a"][..], true),
            ("zone", "In", &["b"], false),
            ("none", "In", &["a"], false),
            ("zone", "NotIn", &["b"], true),
            ("zone", "NotIn", &["a"], false),
            ("none", "NotIn", &["a"], true),
            ("empty", "Exists", &[], true),
            ("none", "Exists", &[], false),
            ("none", "DoesNotExist", &[], true),
            ("zone", "DoesNotExist", &[], false),
            ("size", "Gt", &["7"], true),
            ("size", "Gt", &["8"], false),
            ("size", "Lt", &["9"], true),
            ("zone", "Lt", &["9"], false),
            ("none", "Gt", &["7"], false),
            ("zone", "Near", &["a"], false),
        ] {
            check(
                json!([{"matchExpressions": [one(key, operator, values)]}]),
                expected,
            );
        }
        let (good, bad) = (one("zone", "In", &["a"]), one("zone", "In", &["b"]));
        check(json!([{"matchExpressions": [good, bad]}]), false);
        check(
            json!([{"matchExpressions": [bad]}, {"matchExpressions": [good]}]),
            true,
        );
        check(json!([{}]), false);
        check(json!([]), false);
        let named = |name: &str| json!([{"matchFields": [one("metadata.name", "In", &[name])]}]);
        check(named("here"), true);
        check(named("there"), false);
        let free: Pod = serde_json::from_value(json!({"spec": {"containers": []}})).unwrap();
        assert!(admits(&free, &node));
    }
}
