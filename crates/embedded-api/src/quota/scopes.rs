//! The scopes of a quota: which pods it counts. Pure.

use apimachinery::GroupResource;
use serde_json::Value;

use super::usage;

/// Whether a quota counts the object: without scopes, it counts every one; with scopes, the pods to
/// which all of them apply.
pub(super) fn counts(quota: &Value, kind: GroupResource<'_>, object: &Value) -> bool {
    let spec = &quota["spec"];
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let scopes = items(&spec["scopes"]);
    let terms = items(&spec["scopeSelector"]["matchExpressions"]);
    if scopes.is_empty() && terms.is_empty() {
        return true;
    }
    kind == usage::PODS
        && scopes
            .iter()
            .all(|scope| applies(scope.as_str().unwrap_or_default(), object))
        && terms.iter().all(|term| is_selected(term, object))
}

/// Whether the quota has scopes.
pub(super) fn has_any(quota: &Value) -> bool {
    let is_some = |list: &Value| list.as_array().is_some_and(|all| !all.is_empty());
    let spec = &quota["spec"];
    is_some(&spec["scopes"]) || is_some(&spec["scopeSelector"]["matchExpressions"])
}

fn is_selected(term: &Value, pod: &Value) -> bool {
    let scope = term["scopeName"].as_str().unwrap_or_default();
    if scope != "PriorityClass" {
        return applies(scope, pod);
    }
    let class = class(pod);
    let is_listed = || {
        let mut values = term["values"].as_array().into_iter().flatten();
        values.any(|value| value.as_str() == class)
    };
    match term["operator"].as_str() {
        Some("Exists") => class.is_some(),
        Some("DoesNotExist") => class.is_none(),
        Some("In") => class.is_some() && is_listed(),
        Some("NotIn") => class.is_none() || !is_listed(),
        _ => false,
    }
}

fn applies(scope: &str, pod: &Value) -> bool {
    let spec = &pod["spec"];
    let ends = spec["activeDeadlineSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => class(pod).is_some(),
        "CrossNamespacePodAffinity" => looks_across_namespaces(&spec["affinity"]),
        _ => false,
    }
}

fn class(pod: &Value) -> Option<&str> {
    pod["spec"]["priorityClassName"]
        .as_str()
        .filter(|name| !name.is_empty())
}

fn is_best_effort(pod: &Value) -> bool {
    crate::kinds::pods::qos_class(pod) == "BestEffort"
}

fn looks_across_namespaces(affinity: &Value) -> bool {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let required = items(&affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"]);
        let preferred = items(&affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"]);
        let preferred = preferred
            .into_iter()
            .map(|one| one["podAffinityTerm"].clone());
        required.into_iter().chain(preferred).any(|term| {
            !items(&term["namespaces"]).is_empty() || term["namespaceSelector"].is_object()
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scopes_select_pods() {
        let plain = json!({"spec": {"containers": [{"name": "c"}]}});
        let bounded = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        let term = |operator: &str, values: Value| {
            json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
        };
        let neighbour = json!({"spec": {"containers": [{}], "affinity": {"podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"namespaces": ["n"]}}]}}}});
        for (spec, pod, expected) in [
            (json!({}), &plain, true),
            (json!({"scopes": ["BestEffort"]}), &plain, true),
            (json!({"scopes": ["BestEffort"]}), &bounded, false),
            (
                json!({"scopes": ["NotBestEffort", "Terminating"]}),
                &bounded,
                true,
            ),
            (
                json!({"scopes": ["NotBestEffort", "NotTerminating"]}),
                &bounded,
                false,
            ),
            (json!({"scopes": ["NotTerminating"]}), &plain, true),
            (json!({"scopes": ["PriorityClass"]}), &plain, false),
            (
                json!({"scopes": ["CrossNamespacePodAffinity"]}),
                &plain,
                false,
            ),
            (
                json!({"scopes": ["CrossNamespacePodAffinity"]}),
                &neighbour,
                true,
            ),
            (term("In", json!(["high"])), &bounded, true),
            (term("In", json!(["low"])), &bounded, false),
            (term("In", json!(["high"])), &plain, false),
            (term("NotIn", json!(["high"])), &plain, true),
            (term("NotIn", json!(["high"])), &bounded, false),
            (term("Exists", json!([])), &bounded, true),
            (term("DoesNotExist", json!([])), &bounded, false),
        ] {
            let quota = json!({"spec": spec});
            assert_eq!(counts(&quota, usage::PODS, pod), expected, "{quota}");
        }
        let services = GroupResource {
            resource: "services",
            ..usage::PODS
        };
        let scoped = json!({"spec": {"scopes": ["NotTerminating"]}});
        assert!(!counts(&scoped, services, &json!({})));
    }
}
