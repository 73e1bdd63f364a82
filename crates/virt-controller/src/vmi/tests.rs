//! Plans and statuses for states of a VMI and its pod.

mod conditions;
mod plans;
mod provisions;
mod unsupported;
mod volumes;

use std::sync::Arc;

use jiff::Timestamp;
use launcher_pod::Acceleration;
use serde_json::{Value, json};

use super::networks::Definitions;
use super::observe::{Arrival, Observed};
use super::state_claim::StateClaim;

const NOW: &str = "2026-11-21T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn vmi(phase: &str) -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "default", "uid": "vmi-uid", "resourceVersion": "9",
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine", "keep"],
        },
        "spec": {"terminationGracePeriodSeconds": 10},
        "status": {"phase": phase},
    })
}

fn pod(phase: &str) -> Value {
    let state = match phase {
        "Running" => json!({"running": {"startedAt": NOW}}),
        "Succeeded" | "Failed" => {
            json!({"terminated": {"exitCode": 0, "finishedAt": "2026-11-21T11:59:58Z"}})
        }
        _ => json!({"waiting": {"reason": "ContainerCreating"}}),
    };
    json!({
        "metadata": {"name": "virt-launcher-a-x", "namespace": "default", "uid": "pod-uid"},
        "spec": {"nodeName": "node1"},
        "status": {
            "phase": phase, "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": if phase == "Running" {"True"} else {"False"}}],
            "containerStatuses": [{"name": "compute", "ready": phase == "Running", "image": "i",
                                   "imageID": "", "restartCount": 0, "state": state}],
        },
    })
}

fn deleting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = NOW.into();
    object
}

fn observe(vmi: Value, pod: Option<Value>) -> Observed {
    Observed {
        vmi: Arc::new(serde_json::from_value(vmi).unwrap()),
        pod: pod.map(|pod| Arc::new(serde_json::from_value(pod).unwrap())),
        arrival: Arrival::None,
        has_moved_within_node: false,
        is_read_elsewhere: false,
        left_since: None,
        binder: None,
        others: Vec::new(),
        waiting_for_devices: Vec::new(),
        networks: Definitions::default(),
        backings: Vec::new(),
        state_claim: StateClaim::NotNeeded,
        vsock: None,
        tsc_frequency: None,
        acceleration: Some(Acceleration::Emulation),
        launcher_image: "i".to_owned(),
        is_node_lost: false,
        now: now(),
    }
}
