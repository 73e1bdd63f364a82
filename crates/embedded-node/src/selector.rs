//! Label selectors of objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Whether the selector selects an object with these labels.
pub(crate) fn selects(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key));
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, wanted)| value(key) == Some(wanted));
    let expressions = selector.match_expressions.iter().flatten().all(|one| {
        let found = value(&one.key);
        let listed = found.is_some_and(|found| one.values.iter().flatten().any(|v| v == found));
        match one.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    });
    equal && expressions
}
