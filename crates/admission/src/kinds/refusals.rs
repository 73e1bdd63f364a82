//! Refusals that several kinds share.

use kubevirt_api::duration::Duration;
use validation::Violation;

use super::kind::{Problem, TypedRequest};

/// Refuses new objects of a kind whose feature gate is off.
pub(super) fn requires_gate<T>(request: &TypedRequest<'_, T>, gate: &str) -> Vec<Problem> {
    if !request.is_create() || request.config.has_gate(gate) {
        return Vec::new();
    }
    vec![Problem::Request(format!(
        "feature gate {gate} is off; add it to \
         spec.configuration.developerConfiguration.featureGates of the KubeVirt object"
    ))]
}

/// Refuses a change of an immutable spec.
pub(super) fn immutable<T: PartialEq>(old: Option<&T>, new: &T, kind: &str) -> Vec<Problem> {
    if old.is_none_or(|old| old == new) {
        return Vec::new();
    }
    let detail = format!("immutable; delete this {kind} and create another");
    vec![Violation::invalid("spec", detail).into()]
}

pub(super) fn is_empty(text: Option<&str>) -> bool {
    text.is_none_or(str::is_empty)
}

/// Refuses a malformed duration.
pub(super) fn duration(field: &str, written: Option<&Duration>) -> Vec<Problem> {
    let error = written.and_then(|written| written.parse().err());
    let problem = error.map(|error| Violation::invalid(field, error).into());
    problem.into_iter().collect()
}
