//! Statuses of simulated pods.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The status of a pod whose container runs.
pub(super) fn running(since: Timestamp) -> Value {
    begun(
        "Running",
        &json!({"running": {"startedAt": since.to_string()}}),
    )
}

/// The status of a pod whose container has ended.
pub(super) fn ended(phase: &str, at: Timestamp) -> Value {
    let state = json!({"terminated": {"exitCode": 1, "finishedAt": at.to_string()}});
    begun(phase, &state)
}

fn begun(phase: &str, state: &Value) -> Value {
    let is_up = phase == "Running";
    json!({
        "phase": phase, "qosClass": "Burstable", "podIP": "10.0.0.2",
        "conditions": [{"type": "Ready", "status": if is_up { "True" } else { "False" }}],
        "containerStatuses": [{"name": "compute", "ready": is_up, "image": "launcher:1",
                               "imageID": "", "restartCount": 0, "state": state}],
    })
}

/// The status of a pod whose container waits.
pub(super) fn waiting(reason: &str) -> Value {
    json!({
        "phase": "Pending", "qosClass": "Burstable",
        "containerStatuses": [{"name": "compute", "ready": false, "image": "launcher:1",
                               "imageID": "", "restartCount": 0,
                               "state": {"waiting": {"reason": reason, "message": "later"}}}],
    })
}
