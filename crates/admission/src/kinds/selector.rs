//! Selectors of objects that make others: they must be readable and match what they make.

use std::collections::BTreeMap;

use apimachinery::selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::Fault;
use crate::Violation;

/// Whether a selector matches the labels of the template beside it.
pub(super) fn matches_template(
    written: &LabelSelector,
    labels: Option<&BTreeMap<String, String>>,
    template: &str,
) -> Vec<Fault> {
    let object = serde_json::to_value(written).unwrap_or_default();
    let invalid = |detail: String| vec![Violation::invalid("spec.selector", detail).into()];
    if let Some(detail) = expression_fault(&object) {
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
        "does not match the labels of the template; put the labels it asks for into \
         {template}.metadata.labels"
    ))
}

/// What is wrong with the values of an expression, which must fit its operator.
fn expression_fault(selector: &Value) -> Option<String> {
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
