//! The printable status for states of a VM, its VMI and its volumes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{NOW, Printable, observe, printable, set, vm, vmi, with_volume};
use crate::view::{Claim, DataVolume};
use crate::vm::observe::Observed;
use crate::vm::printable::ROWS;
use crate::vm::status::Done;

/// The state that selects a row of the printable status, on top of a VM that should start.
struct Case {
    status: &'static str,
    vm: fn(Value) -> Value,
    vmi: fn(Value) -> Value,
}

/// Sets that condition to False.
fn failing(mut vmi: Value, kind: &str, reason: &str) -> Value {
    let list = vmi["status"]["conditions"].as_array().cloned();
    let mut list = list.unwrap_or_default();
    list.retain(|condition| condition["type"] != kind);
    list.push(json!({"type": kind, "status": "False", "reason": reason}));
    vmi["status"]["conditions"] = list.into();
    vmi
}

/// States that can all hold at once, in order of precedence. A state that needs another phase than
/// the ones below it changes the phase.
const CASES: [Case; 12] = [
    Case {
        status: "Terminating",
        vm: |vm| set(vm, "/metadata/deletionTimestamp", json!(NOW)),
        vmi: |vmi| vmi,
    },
    Case {
        status: "Stopping",
        vm: |vm| vm,
        vmi: |vmi| set(vmi, "/metadata/deletionTimestamp", json!(NOW)),
    },
    Case {
        status: "Migrating",
        vm: |vm| vm,
        vmi: |vmi| {
            let state = json!({"startTimestamp": NOW});
            set(vmi, "/status/migrationState", state)
        },
    },
    Case {
        status: "Paused",
        vm: |vm| vm,
        vmi: |mut vmi| {
            let paused = json!({"type": "Paused", "status": "True"});
            let list = vmi["status"]["conditions"].as_array_mut();
            list.unwrap().push(paused);
            vmi
        },
    },
    Case {
        status: "Running",
        vm: |vm| vm,
        vmi: |vmi| set(vmi, "/status/phase", json!("Running")),
    },
    Case {
        status: "ErrorPvcNotFound",
        vm: |vm| vm,
        vmi: |vmi| failing(vmi, "Synchronized", "FailedPvcNotFound"),
    },
    Case {
        status: "DataVolumeError",
        vm: |vm| with_volume(vm, &json!({"dataVolume": {"name": "failed"}})),
        vmi: |vmi| vmi,
    },
    Case {
        status: "ErrorUnschedulable",
        vm: |vm| vm,
        vmi: |vmi| failing(vmi, "PodScheduled", "Unschedulable"),
    },
    Case {
        status: "Provisioning",
        vm: |vm| with_volume(vm, &json!({"dataVolume": {"name": "coming"}})),
        vmi: |vmi| vmi,
    },
    Case {
        status: "WaitingForVolumeBinding",
        vm: |vm| {
            with_volume(
                vm,
                &json!({"persistentVolumeClaim": {"claimName": "unbound"}}),
            )
        },
        vmi: |vmi| vmi,
    },
    Case {
        status: "ErrImagePull",
        vm: |vm| vm,
        vmi: |vmi| failing(vmi, "Synchronized", "ErrImagePull"),
    },
    Case {
        status: "Starting",
        vm: |vm| vm,
        vmi: |vmi| vmi,
    },
];

/// The observation with the volumes in the caches.
fn observe_with_volumes(vm: Value, vmi: Option<Value>) -> Observed {
    let mut observed = observe(vm, vmi);
    for volume in observed.vm.volumes() {
        if let Some(name) = volume.pointer("/persistentVolumeClaim/claimName") {
            let phase = if name == "unbound" {
                "Pending"
            } else {
                "Bound"
            };
            let claim = json!({"metadata": {"name": name}, "status": {"phase": phase}});
            let claim: Claim = serde_json::from_value(claim).unwrap();
            observed.claims.push(Arc::new(claim));
        }
        if let Some(name) = volume.pointer("/dataVolume/name") {
            let phase = match name.as_str().unwrap() {
                "failed" => "Failed",
                "coming" => "ImportInProgress",
                "done" => "Succeeded",
                _ => "WaitForFirstConsumer",
            };
            let volume = json!({"metadata": {"name": name}, "status": {"phase": phase}});
            let volume: DataVolume = serde_json::from_value(volume).unwrap();
            observed.data_volumes.push(Arc::new(volume));
        }
    }
    observed
}

#[test]
fn printable_status_follows_the_order_of_precedence() {
    for (n, case) in CASES.iter().enumerate() {
        // This state and all below it.
        let (mut vm, mut vmi) = (vm("Always"), vmi("Scheduling"));
        for case in CASES[n..].iter().rev() {
            vm = (case.vm)(vm);
            vmi = (case.vmi)(vmi);
        }
        let observed = observe_with_volumes(vm, Some(vmi));
        assert_eq!(printable(&observed, &Done::default()).as_str(), case.status);
        let row = ROWS
            .iter()
            .position(|(status, _)| status.as_str() == case.status);
        let last = CASES[..n].iter().map(|case| case.status).next_back();
        let before = ROWS
            .iter()
            .position(|(status, _)| Some(status.as_str()) == last);
        assert!(before.is_none() || before < row, "{}", case.status);
    }
}

#[test]
fn printable_status_of_missing_and_ended_guests() {
    let created = Done {
        created: true,
        ..Done::default()
    };
    let failure = json!({"consecutiveFailCount": 1, "lastFailedVMIUID": "old",
                         "retryAfterTimestamp": "2026-11-21T12:00:10Z"});
    let failed = |strategy| set(vm(strategy), "/status/startFailure", failure.clone());
    let nothing = Done::default();
    let cases = [
        (vm("Manual"), None, &nothing, Printable::Stopped),
        (vm("Always"), None, &created, Printable::Starting),
        (vm("Manual"), Some(vmi("")), &nothing, Printable::Starting),
        (
            vm("Manual"),
            Some(vmi("Scheduled")),
            &nothing,
            Printable::Starting,
        ),
        (
            vm("Manual"),
            Some(vmi("Succeeded")),
            &nothing,
            Printable::Stopped,
        ),
        (
            vm("Manual"),
            Some(vmi("Failed")),
            &nothing,
            Printable::Stopped,
        ),
        (
            failed("Always"),
            None,
            &nothing,
            Printable::CrashLoopBackOff,
        ),
        (failed("Always"), None, &created, Printable::Starting),
        (
            failed("RerunOnFailure"),
            None,
            &nothing,
            Printable::CrashLoopBackOff,
        ),
        (failed("Manual"), None, &nothing, Printable::Stopped),
        (
            vm("Manual"),
            Some(failing(
                vmi("Scheduling"),
                "Synchronized",
                "ImagePullBackOff",
            )),
            &nothing,
            Printable::ImagePullBackOff,
        ),
        // A receiver without a VMI is Stopped like any other VM.
        (vm("WaitAsReceiver"), None, &nothing, Printable::Stopped),
        (
            vm("WaitAsReceiver"),
            Some(vmi("WaitingForSync")),
            &nothing,
            Printable::WaitingForReceiver,
        ),
        (
            vm("Manual"),
            Some(vmi("WaitingForSync")),
            &nothing,
            Printable::Unknown,
        ),
    ];
    for (vm, vmi, done, expected) in cases {
        let text = format!("{} {vmi:?}", vm["spec"]["runStrategy"]);
        assert_eq!(printable(&observe(vm, vmi), done), expected, "{text}");
    }
}

#[test]
fn vm_waits_for_volumes_only_if_it_should_start() {
    let unbound = json!({"persistentVolumeClaim": {"claimName": "unbound"}});
    let ready = json!({"dataVolume": {"name": "done"}});
    let later = json!({"dataVolume": {"name": "first-consumer"}});
    let start = json!([{"action": "Start"}]);
    let requested = set(vm("Manual"), "/status/stateChangeRequests", start);
    let cases = [
        (vm("Always"), &unbound, "WaitingForVolumeBinding"),
        (vm("Manual"), &unbound, "Stopped"),
        (requested, &unbound, "WaitingForVolumeBinding"),
        (vm("Halted"), &unbound, "Stopped"),
        (vm("RerunOnFailure"), &unbound, "Stopped"),
        (vm("Once"), &unbound, "WaitingForVolumeBinding"),
        (vm("Manual"), &ready, "Stopped"),
        (vm("Manual"), &later, "Stopped"),
    ];
    for (vm, volume, expected) in cases {
        let strategy = vm["spec"]["runStrategy"].clone();
        let observed = observe_with_volumes(with_volume(vm, volume), None);
        let found = printable(&observed, &Done::default());
        assert_eq!(found.as_str(), expected, "{strategy} {volume}");
    }
}
