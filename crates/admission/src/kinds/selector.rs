//! Selectors of pools and replica sets: they must be valid and match the template.

use std::collections::BTreeMap;

use apimachinery::selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use validation::Violation;

use super::kind::Problem;

/// Problems of a selector that is malformed or does not match the labels of the template.
pub(super) fn matches_template(
    written: &LabelSelector,
    labels: Option<&BTreeMap<String, String>>,
    template: &str,
) -> Vec<Problem> {
    let object = serde_json::to_value(written).unwrap_or_default();
    let invalid = |detail: String| vec![Violation::invalid("spec.selector", detail).into()];
    if let Some(detail) = expression_problem(&object) {
        return invalid(detail);
    }
    let read = match selector::LabelSelector::from_object(&object) {
        Ok(read) => read,
        Err(error) => return invalid(format!("{}; correct the selector", error.reason())),
    };
    let labelled = json!({ "metadata": { "labels": labels } });
    if read.is_some_and(|selector| selector.matches(&labelled)) {
        return Vec::new();
    }
    invalid(format!(
        "does not match the labels of the template; add the selected labels to \
         {template}.metadata.labels"
    ))
}

/// Why an expression is invalid: its values must fit the operator.
fn expression_problem(selector: &Value) -> Option<String> {
    let expressions = selector["matchExpressions"].as_array()?;
    expressions.iter().enumerate().find_map(|(i, one)| {
        let operator = one["operator"].as_str().unwrap_or_default();
        let has_values = one["values"]
            .as_array()
            .is_some_and(|values| !values.is_empty());
        let wanted = match operator {
            "In" | "NotIn" if !has_values => "list at least one value",
            "Exists" | "DoesNotExist" if has_values => "leave out values",
            "In" | "NotIn" | "Exists" | "DoesNotExist" => return None,
            _ => "use operator In, NotIn, Exists or DoesNotExist",
        };
        Some(format!(
            "matchExpressions[{i}] with operator {operator:?} is wrong; {wanted}"
        ))
    })
}
