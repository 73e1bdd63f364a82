//! The table of strategies, and plans and statuses for states of a VM.

mod choice;
mod failures;
mod followed;
mod live;
mod memory_dump;
mod ownership;
mod printable;
mod rendered;
mod requests;
mod restart;
mod strategy;
mod suspend;
mod templates;
mod volume_moves;

use std::sync::Arc;

use jiff::Timestamp;
use kubevirt_api::vm_status::VirtualMachinePrintableStatus as Printable;
use serde_json::{Value, json};

use super::data_volumes::Importer;
use super::instancetype::ChoiceStep;
use super::observe::Observed;
use super::plan::plan;
use super::status::{self, Done};
use super::view::Vm;
use crate::view::Guest;

const NOW: &str = "2026-11-21T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A VM with a strategy; finalizer and old status set as after its first reconciles.
fn vm(strategy: &str) -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "default", "uid": "vm-uid", "generation": 3,
            "resourceVersion": "7",
            "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"],
        },
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"note": "x"}},
                "spec": {"domain": {"devices": {}}, "brandNew": {"field": 1}},
            },
        },
        "status": {"runStrategy": strategy},
    })
}

fn vmi(phase: &str) -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "default", "uid": "vmi-uid",
            "annotations": {"kubevirt.io/vm-generation": "2"},
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine",
                           "kubevirt.io/virtualMachineControllerFinalize"],
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                                 "name": "a", "uid": "vm-uid", "controller": true}],
        },
        "status": {"phase": phase},
    })
}

fn set(mut object: Value, path: &str, value: Value) -> Value {
    let mut at = &mut object;
    for part in path.split('/').skip(1) {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[part],
        };
    }
    *at = value;
    object
}

fn observe(vm: Value, vmi: Option<Value>) -> Observed {
    let read_vmi = |vmi| serde_json::from_value::<Guest>(vmi).unwrap();
    Observed {
        vm: Arc::new(serde_json::from_value::<Vm>(vm).unwrap()),
        vmi: vmi.map(read_vmi).map(Arc::new),
        claims: Vec::new(),
        data_volumes: Vec::new(),
        copyable: std::collections::BTreeMap::new(),
        templates: Vec::new(),
        importer: Importer::Installed,
        started_from: None,
        live: None,
        unread: None,
        moving: None,
        follows_changes: true,
        choice: ChoiceStep::Nothing,
        outdated: Vec::new(),
        has_hotplug: true,
        saved: Vec::new(),
        now: now(),
    }
}

fn printable(observed: &Observed, done: &Done) -> Printable {
    let plan = plan(observed);
    status::render(observed, &plan, done)
        .printable_status
        .unwrap()
}

fn with_volume(mut vm: Value, volume: &Value) -> Value {
    let volumes = &mut vm["spec"]["template"]["spec"]["volumes"];
    if volumes.is_null() {
        *volumes = json!([]);
    }
    volumes.as_array_mut().unwrap().push(volume.clone());
    vm
}
