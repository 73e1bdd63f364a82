//! Dumps of the guest's memory to a claim: pure.
//!
//! A request is in the VM's status. The volume of a dump is in the VM's template from the request until the
//! claim is released, and in the VMI only while the dump is made: virt-handler makes one each time that the
//! volume comes.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::vm_status::{
    MemoryDumpPhase as Phase, VirtualMachineMemoryDumpRequest as Request,
};
use kubevirt_api::vmi_status::{VirtualMachineInstancePhase, VolumePhase, VolumeStatus};
use serde_json::{Value, json};

use super::observe::Observed;
use super::view::Vm;
use crate::view::{Guest, Purpose};

/// The value of the annotation of a claim whose last dump failed.
const FAILED: &str = "Memory dump failed";

/// What one reconcile does for a dump.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Dump {
    pub(super) change: Option<Change>,
    pub(super) next: Next,
}

/// The request in the status after the change.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Next {
    #[default]
    Stays,
    Is(Request),
    /// There is none any more.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Adds the volume to the template.
    Associate,
    /// Removes the volume from the template.
    Dissociate,
    /// Sets the annotation of the claim to the name of the dump.
    Note(String),
}

/// Plans for the VM's own, present VMI.
pub(super) fn plan(observed: &Observed) -> Dump {
    let status = observed.vm.status();
    let Some(request) = &status.memory_dump_request else {
        return Dump::default();
    };
    let vmi = observed.own_vmi().map(AsRef::as_ref);
    let step = match request.phase {
        _ if request.remove == Some(true) => dissociate(&observed.vm, vmi, request),
        Phase::Associating => associate(&observed.vm, vmi, request),
        Phase::InProgress => follow(&observed.vm, vmi, request, observed.now),
        Phase::Unmounting if vmi.is_none_or(|vmi| !has_volume(vmi, &observed.vm, request)) => {
            Dump::to(Request {
                phase: Phase::Completed,
                ..request.clone()
            })
        }
        Phase::Dissociating => dissociate(&observed.vm, vmi, request),
        _ => Dump::default(),
    };
    if step.next == Next::Is(request.clone()) {
        return Dump {
            next: Next::Stays,
            ..step
        };
    }
    step
}

impl Dump {
    fn to(next: Request) -> Self {
        Self {
            change: None,
            next: Next::Is(next),
        }
    }
}

/// The volume is in the template once the guest runs and has nothing left of an earlier dump.
fn associate(vm: &Vm, vmi: Option<&Guest>, request: &Request) -> Dump {
    let is_running = vmi.is_some_and(|vmi| {
        *vmi.phase() == VirtualMachineInstancePhase::Running && !vmi.is_deleting()
    });
    if !is_running || vmi.is_some_and(|vmi| has_old_result(vmi, vm, request)) {
        return Dump::default();
    }
    Dump {
        change: volume_in(vm, request)
            .is_none()
            .then_some(Change::Associate),
        ..Dump::to(Request {
            phase: Phase::InProgress,
            ..request.clone()
        })
    }
}

fn follow(vm: &Vm, vmi: Option<&Guest>, request: &Request, now: jiff::Timestamp) -> Dump {
    // Somebody has replaced the template.
    if volume_in(vm, request).is_none() {
        return Dump {
            change: Some(Change::Associate),
            next: Next::Stays,
        };
    }
    let Some(volume) = vmi.and_then(|vmi| status_of(vmi, vm, request)) else {
        return Dump::default();
    };
    let info = volume.memory_dump_volume.clone().unwrap_or_default();
    let mut next = Request {
        start_timestamp: info.start_timestamp.or(request.start_timestamp.clone()),
        ..request.clone()
    };
    let now = whole_seconds(now);
    match volume.phase {
        Some(VolumePhase::MemoryDumpCompleted) => {
            let file = info.target_file_name.unwrap_or_default();
            next.phase = Phase::Unmounting;
            next.end_timestamp = info.end_timestamp.or(Some(now));
            next.file_name = Some(file.clone());
            Dump {
                change: Some(Change::Note(file)),
                ..Dump::to(next)
            }
        }
        Some(VolumePhase::MemoryDumpFailed) => Dump {
            change: Some(Change::Note(FAILED.to_owned())),
            ..Dump::to(Request {
                phase: Phase::Failed,
                end_timestamp: info.end_timestamp.or(Some(now)),
                message: Some(volume.message.clone().unwrap_or_default()),
                ..next
            })
        },
        _ => Dump::to(next),
    }
}

fn dissociate(vm: &Vm, vmi: Option<&Guest>, request: &Request) -> Dump {
    let is_in_guest = vmi.is_some_and(|vmi| has_volume(vmi, vm, request));
    let is_in_template = volume_in(vm, request).is_some();
    let next = if is_in_guest {
        Next::Is(Request {
            phase: Phase::Dissociating,
            ..request.clone()
        })
    } else {
        Next::Gone
    };
    Dump {
        // The status of the guest has the volume by the name that it has in the template.
        change: (is_in_template && !is_in_guest).then_some(Change::Dissociate),
        next,
    }
}

/// The request of a dump for which the template was refused.
pub(super) fn failed(request: &Request, message: &str, now: jiff::Timestamp) -> Request {
    Request {
        phase: Phase::Failed,
        message: Some(format!("the volume of the dump was refused: {message}")),
        end_timestamp: Some(whole_seconds(now)),
        ..request.clone()
    }
}

/// As a status keeps it.
fn whole_seconds(now: jiff::Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The merge patch of the status.
pub(super) fn status_patch(next: Option<&Request>) -> Value {
    let Some(next) = next else {
        return json!({"memoryDumpRequest": null});
    };
    // A merge patch keeps what it lacks.
    json!({"memoryDumpRequest": {
        "claimName": next.claim_name,
        "phase": next.phase,
        "remove": next.remove,
        "startTimestamp": next.start_timestamp,
        "endTimestamp": next.end_timestamp,
        "fileName": next.file_name,
        "message": next.message,
    }})
}

/// The volumes of the template with that of the dump, or without it, as a merge patch of its spec.
pub(super) fn volumes_patch(vm: &Vm, request: &Request, change: &Change) -> Value {
    let claim = request.claim_name.as_str();
    let mut volumes = vm.volumes().to_vec();
    volumes.retain(|volume| dump_claim(volume) != Some(claim));
    if *change == Change::Associate {
        volumes.push(json!({
            "name": claim,
            "memoryDump": {"claimName": claim, "hotpluggable": true},
        }));
    }
    json!({"volumes": volumes})
}

/// The template as the VMI follows it: without the volume of a dump that is not to be made now.
pub(super) fn live_template<'a>(vm: &'a Vm, vmi: Option<&Guest>) -> Cow<'a, Value> {
    let status = vm.status();
    let is_unwanted = |volume: &Value| {
        let (Some(claim), Some(request)) = (dump_claim(volume), &status.memory_dump_request) else {
            return false;
        };
        claim == request.claim_name && !is_wanted(vm, vmi, request)
    };
    let template = &vm.spec.template;
    if !vm.volumes().iter().any(is_unwanted) {
        return Cow::Borrowed(template);
    }
    let mut live = template.clone();
    if let Some(Value::Array(volumes)) = live.pointer_mut("/spec/volumes") {
        volumes.retain(|volume| !is_unwanted(volume));
    }
    Cow::Owned(live)
}

fn is_wanted(vm: &Vm, vmi: Option<&Guest>, request: &Request) -> bool {
    request.remove != Some(true)
        && match request.phase {
            Phase::Associating => vmi.is_none_or(|vmi| !has_old_result(vmi, vm, request)),
            Phase::InProgress => true,
            _ => false,
        }
}

/// The claim of the volume, if it is for dumps.
fn dump_claim(volume: &Value) -> Option<&str> {
    volume.pointer("/memoryDump/claimName")?.as_str()
}

/// The name of the dump's volume in the template.
fn volume_in<'a>(vm: &'a Vm, request: &Request) -> Option<&'a str> {
    let claim = Some(request.claim_name.as_str());
    let volume = vm
        .volumes()
        .iter()
        .find(|volume| dump_claim(volume) == claim);
    volume?.get("name")?.as_str()
}

fn volume_name<'a>(vm: &'a Vm, request: &'a Request) -> &'a str {
    volume_in(vm, request).unwrap_or(&request.claim_name)
}

fn status_of<'a>(vmi: &'a Guest, vm: &Vm, request: &Request) -> Option<&'a VolumeStatus> {
    let name = volume_name(vm, request);
    let mut all = vmi.status.volumes.iter();
    all.find(|volume| volume.name == name && volume.hotplug_volume.is_some())
}

/// Whether the guest's pod has the volume, or may get it.
fn has_volume(vmi: &Guest, vm: &Vm, request: &Request) -> bool {
    let mut plugs = vmi.plugs.iter();
    let is_dump = |plug: &crate::view::Plug| {
        plug.purpose == Purpose::MemoryDump && plug.claim == request.claim_name
    };
    !vmi.is_final() && (plugs.any(is_dump) || status_of(vmi, vm, request).is_some())
}

/// Whether the VMI shows an earlier dump to the same claim, which has to leave first.
fn has_old_result(vmi: &Guest, vm: &Vm, request: &Request) -> bool {
    let volume = status_of(vmi, vm, request);
    let phase = volume.and_then(|volume| volume.phase.as_ref());
    matches!(
        phase,
        Some(
            VolumePhase::MemoryDumpInProgress
                | VolumePhase::MemoryDumpCompleted
                | VolumePhase::MemoryDumpFailed
                | VolumePhase::Detaching
                | VolumePhase::UnMountedFromPod
        )
    )
}
