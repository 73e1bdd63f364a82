//! The response to an admission request.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use validation::Violation;

use crate::kinds::Findings;

/// Maximum of messages in the summary; the rest is counted.
const MAX_SUMMARY: usize = 10;
/// Maximum of causes, because API servers limit the size of a response.
const MAX_CAUSES: usize = 1000;

/// Result of a review.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) violations: Vec<Violation>,
    /// Message of a refusal of the request as a whole.
    pub(super) rejection: Option<String>,
    pub(super) warnings: Vec<String>,
    pub(super) patch: Option<String>,
}

impl From<Findings> for Outcome {
    fn from(findings: Findings) -> Self {
        Self {
            violations: findings.violations,
            rejection: findings.rejection.map(|rejection| rejection.message),
            warnings: findings.warnings,
            ..Self::default()
        }
    }
}

impl From<Vec<Violation>> for Outcome {
    fn from(violations: Vec<Violation>) -> Self {
        Self {
            violations,
            ..Self::default()
        }
    }
}

impl Outcome {
    /// Renders the `response` of the review of a `request`.
    pub(super) fn to_response(&self, request: &Value) -> Value {
        let status = if self.violations.is_empty() {
            self.rejection.as_deref().map(bad_request)
        } else {
            Some(invalid(request, &self.violations))
        };
        let mut response = json!({ "uid": request["uid"], "allowed": status.is_none() });
        if let Some(status) = status {
            response["status"] = status;
        }
        if let Some(patch) = &self.patch {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(patch));
        }
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        response
    }
}

/// The JSON patch from one object to another; `None` if they are equal.
pub(super) fn json_patch(old: &Value, new: &Value) -> Option<String> {
    let patch = json_patch::diff(old, new);
    if patch.0.is_empty() {
        return None;
    }
    serde_json::to_string(&patch).ok()
}

fn bad_request(message: &str) -> Value {
    json!({ "status": "Failure", "message": message, "reason": "BadRequest", "code": 400 })
}

fn invalid(request: &Value, violations: &[Violation]) -> Value {
    let listed: Vec<&str> = violations
        .iter()
        .take(MAX_SUMMARY)
        .map(|violation| violation.message.as_str())
        .collect();
    let rest = violations.len() - listed.len();
    let mut message = listed.join("; ");
    if rest > 0 {
        message = format!("{message}; and {rest} more");
    }
    let causes: Vec<Value> = violations
        .iter()
        .take(MAX_CAUSES)
        .map(Violation::to_status_cause)
        .collect();
    json!({
        "status": "Failure",
        "message": message,
        "reason": "Invalid",
        "code": 422,
        "details": {
            "group": request["kind"]["group"],
            "kind": request["kind"]["kind"],
            "name": request["name"],
            "causes": causes,
        },
    })
}
