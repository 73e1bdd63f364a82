//! Disruption budgets: how many pods of a set may be evicted at once.

use apimachinery::Violation;
use serde_json::{Map, Value, json};

use super::{InitialStatus, Strategy, fields::fill};

pub(crate) const BUDGET: Strategy = Strategy {
    default,
    validate: |_, budget| validate(budget),
    initial_status: InitialStatus::Dropped,
    ..Strategy::PLAIN
};

/// The numbers in the status are visible before the first count.
fn default(budget: &mut Value) {
    fill(budget, "status", json!({}));
    for field in [
        "currentHealthy",
        "desiredHealthy",
        "disruptionsAllowed",
        "expectedPods",
    ] {
        fill(&mut budget["status"], field, 0);
    }
}

fn validate(budget: &Value) -> Vec<Violation> {
    let spec = &budget["spec"];
    let mut wrong = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        wrong.push(Violation::invalid("spec", spec.clone(), why));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        wrong.extend(check_amount(&format!("spec.{field}"), &spec[field]));
    }
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if let Some(found) = policy.as_str() {
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        if !known.contains(&found) {
            let at = "spec.unhealthyPodEvictionPolicy";
            wrong.push(Violation::not_supported(at, found, known));
        }
    }
    for key in counts(&budget["status"]) {
        let why = "must be greater than or equal to 0";
        wrong.push(Violation::invalid(
            format!("status.{key}"),
            budget["status"][key].clone(),
            why,
        ));
    }
    wrong
}

fn counts(status: &Value) -> impl Iterator<Item = &str> {
    let fields = status.as_object().into_iter().flat_map(Map::iter);
    fields
        .filter(|(_, value)| value.as_i64().is_some_and(|number| number < 0))
        .map(|(key, _)| key.as_str())
}

/// A number of pods, or a percentage of them, e.g. `30%`.
fn check_amount(at: &str, amount: &Value) -> Option<Violation> {
    match amount {
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            let why = "must be greater than or equal to 0";
            Some(Violation::invalid(at, amount.clone(), why))
        }
        Value::String(text) => {
            let share = text.strip_suffix('%').and_then(|n| n.parse::<u32>().ok());
            match share {
                None => {
                    let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                    Some(Violation::invalid(at, text.as_str(), why))
                }
                Some(share) if share > 100 => {
                    let why = "must not be greater than 100%";
                    Some(Violation::invalid(at, text.as_str(), why))
                }
                Some(_) => None,
            }
        }
        _ => None,
    }
}
