//! Resource quotas: scopes are not supported.

use apimachinery::Violation;
use serde_json::{Value, json};

use super::{InitialStatus, Strategy, fields::fill};

pub(crate) const QUOTA: Strategy = Strategy {
    default: |quota| fill(quota, "status", json!({})),
    validate: |_, quota| validate(quota),
    initial_status: InitialStatus::Dropped,
    ..Strategy::PLAIN
};

/// Quotas count all objects of a namespace; scopes are rejected.
fn validate(quota: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for field in ["scopes", "scopeSelector"] {
        let found = &quota["spec"][field];
        let is_empty = found.is_null() || found.as_array().is_some_and(Vec::is_empty);
        if !is_empty {
            let why = "this server counts all objects of a namespace: leave it out";
            wrong.push(Violation::forbidden(format!("spec.{field}"), why));
        }
    }
    wrong
}
