//! Statuses of simulated pods.

use serde_json::{Value, json};

/// The status of a pod whose container runs, or has ended.
pub(super) fn ended_or_running(phase: &str) -> Value {
    const AT: &str = "2026-11-21T12:00:00Z";
    let is_up = phase == "Running";
    let state = if is_up {
        json!({"running": {"startedAt": AT}})
    } else {
        json!({"terminated": {"exitCode": 1, "finishedAt": AT}})
    };
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
