//! Custom resource definitions: derived names, status and validation.

use apimachinery::Violation;
use serde_json::Value;

use super::{Nulls, StatusMetadata, Strategy};
use crate::registry::custom;

pub(crate) const DEFINITION: Strategy = Strategy {
    default: custom::default,
    accept: custom::accept,
    validate,
    nulls: Nulls::Kept,
    status_metadata: StatusMetadata::Kept,
    // The definition stays until its objects are deleted.
    finalizers: &[custom::CLEANUP],
    ..Strategy::PLAIN
};

fn validate(live: Option<&Value>, crd: &Value) -> Vec<Violation> {
    let mut wrong = custom::check(crd);
    if live.is_none_or(|live| live["spec"]["versions"] != crd["spec"]["versions"]) {
        wrong.extend(custom::check_rules(crd));
    }
    wrong
}
