//! Plans, statuses, claims and pods for states of a data volume.

mod copies;
mod imports;
mod rendered;
mod requests;

use std::sync::Arc;

use launcher_pod::ContainerDisks;
use serde_json::{Value, json};

use super::observe::{Observed, Origin};
use super::plan::{Plan, Step, plan};
use super::request::{self, Abilities, Refusal, Unmet};
use super::transfer::Transfer;
use super::view::ImporterPod;
use crate::Uploads;
use crate::view::DataVolume;

const NOW: &str = "2026-11-25T12:00:00Z";

const ABLE: Abilities = Abilities {
    images: ContainerDisks::ImageVolumes,
    uploads: Uploads::Received,
};

fn volume(spec: &Value) -> Value {
    json!({
        "metadata": {"name": "disk", "namespace": "n", "uid": "u", "resourceVersion": "3"},
        "spec": spec,
    })
}

fn web() -> Value {
    json!({
        "source": {"http": {"url": "https://example.com/disk.qcow2"}},
        "storage": {"resources": {"requests": {"storage": "10Mi"}}},
    })
}

fn with_source(source: Value) -> Value {
    let mut spec = web();
    spec["source"] = source;
    spec
}

fn a_claim(phase: &str) -> Value {
    json!({
        "metadata": {"name": "disk", "namespace": "n", "uid": "c", "ownerReferences": [
            {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk",
             "uid": "u", "controller": true}]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                 "resources": {"requests": {"storage": "11Mi"}}},
        "status": {"phase": phase, "capacity": {"storage": "11Mi"}},
    })
}

fn a_pod(phase: &str, container: &Value) -> Value {
    let mut container = container.clone();
    for (name, value) in [
        ("name", json!("importer")),
        ("ready", json!(false)),
        ("image", json!("i")),
        ("imageID", json!("")),
    ] {
        container[name] = value;
    }
    if container["restartCount"].is_null() {
        container["restartCount"] = json!(0);
    }
    json!({
        "metadata": {"name": "importer-u", "namespace": "n", "uid": "p",
                     "annotations": {"ferrovirt.io/import-restarts": "2"}},
        "status": {"phase": phase, "containerStatuses": [container]},
    })
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn observe(volume: Value, claim: Option<Value>, pod: Option<Value>) -> Observed {
    let volume: DataVolume = read(volume);
    let request = match &volume.unfinished {
        Some(whole) => request::parse(whole, None, ABLE),
        None => Err(Refusal(String::new())),
    };
    Observed {
        request: request.map_err(Unmet::from),
        named: None,
        volume: Arc::new(volume),
        claim: claim.map(|claim| Arc::new(read(claim))),
        waits_for_consumer: false,
        origin: Origin::None,
        transfer: Transfer::None,
        pod: pod.map(|pod| Arc::new(read::<ImporterPod>(pod))),
        progress: None,
        now: NOW.parse().unwrap(),
    }
}

/// Phase, reason of the condition `Running`, and steps.
fn describe(plan: &Plan) -> (String, String, Vec<Step>) {
    let outcome = plan.outcome.as_ref();
    let reason = outcome.and_then(|outcome| outcome.running.reason);
    (
        outcome.map_or(String::new(), |outcome| outcome.phase.as_str().to_owned()),
        reason.map_or(String::new(), |reason| reason.as_str().to_owned()),
        plan.steps.clone(),
    )
}

#[track_caller]
fn check(observed: &Observed, phase: &str, reason: &str, steps: &[Step]) {
    let found = plan(observed);
    let expected = (phase.to_owned(), reason.to_owned(), steps.to_vec());
    assert_eq!(describe(&found), expected, "{found:#?}");
}

fn from_snapshot(storage: &Value) -> Value {
    json!({"source": {"snapshot": {"namespace": "n", "name": "copy"}}, "storage": storage})
}
