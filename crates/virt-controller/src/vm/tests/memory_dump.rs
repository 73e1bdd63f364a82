//! Requests of dumps of the guest's memory.

use kubevirt_api::vm_status::VirtualMachineMemoryDumpRequest;
use serde_json::{Value, json};

use super::{observe, set, vm, vmi, with_volume};
use crate::vm::memory_dump::{self, Change, Next, live_template, status_patch, volumes_patch};
use crate::vm::observe::Observed;
use crate::vm::plan::{Step, plan};
use crate::vm::template;

fn volume() -> Value {
    json!({"name": "c", "memoryDump": {"claimName": "c", "hotpluggable": true}})
}

/// A VM with a request in a phase; with the volume in the template.
fn with_request(phase: &str) -> Value {
    let request = json!({"claimName": "c", "phase": phase});
    with_volume(
        set(vm("Always"), "/status/memoryDumpRequest", request),
        &volume(),
    )
}

/// Without the volume in the template.
fn without_volume(phase: &str) -> Value {
    set(
        with_request(phase),
        "/spec/template/spec/volumes",
        json!([]),
    )
}

/// A running guest with the volume in a phase.
fn guest(phase: &str) -> Value {
    let guest = set(vmi("Running"), "/spec", json!({"volumes": [volume()]}));
    let info = json!({
        "claimName": "c", "targetFileName": "f", "startTimestamp": "2026-11-21T11:00:00Z",
        "endTimestamp": "2026-11-21T11:00:05Z",
    });
    let status = json!([{
        "name": "c", "target": "", "phase": phase, "message": "no space", "hotplugVolume": {},
        "memoryDumpVolume": info,
    }]);
    set(guest, "/status/volumeStatus", status)
}

/// The volume is leaving, and the spec does not have it any more.
fn leaving() -> Value {
    set(guest("Detaching"), "/spec", json!({}))
}

/// The plan as text: `associate>InProgress`, `->Completed`, `dissociate>none`, `note f>-`.
fn shown(observed: &Observed) -> String {
    let dump = memory_dump::plan(observed);
    let change = match &dump.change {
        None => "-".to_owned(),
        Some(Change::Associate) => "associate".to_owned(),
        Some(Change::Dissociate) => "dissociate".to_owned(),
        Some(Change::Note(note)) => format!("note {note}"),
    };
    let next = match &dump.next {
        Next::Stays => "-".to_owned(),
        Next::Gone => "none".to_owned(),
        Next::Is(next) => next.phase.as_str().to_owned(),
    };
    format!("{change}>{next}")
}

fn request_after(observed: &Observed) -> VirtualMachineMemoryDumpRequest {
    match memory_dump::plan(observed).next {
        Next::Is(request) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_phase_leads_to_the_next_one() {
    let removed = |vm: Value| set(vm, "/status/memoryDumpRequest/remove", json!(true));
    let running = || Some(vmi("Running"));
    for (vm, vmi, expected) in [
        (
            without_volume("Associating"),
            running(),
            "associate>InProgress",
        ),
        (with_request("Associating"), running(), "->InProgress"),
        (without_volume("Associating"), None, "->-"),
        (without_volume("Associating"), Some(vmi("Scheduled")), "->-"),
        // What is left of an earlier dump to the claim goes first.
        (
            with_request("Associating"),
            Some(guest("MemoryDumpCompleted")),
            "->-",
        ),
        (
            with_request("Associating"),
            Some(guest("MemoryDumpFailed")),
            "->-",
        ),
        (with_request("Associating"), Some(leaving()), "->-"),
        (with_request("InProgress"), running(), "->-"),
        // The guest is restarted meanwhile.
        (with_request("InProgress"), None, "->-"),
        (without_volume("InProgress"), running(), "associate>-"),
        (
            with_request("InProgress"),
            Some(guest("MountedToPod")),
            "->InProgress",
        ),
        (
            with_request("InProgress"),
            Some(guest("MemoryDumpCompleted")),
            "note f>Unmounting",
        ),
        (
            with_request("InProgress"),
            Some(guest("MemoryDumpFailed")),
            "note Memory dump failed>Failed",
        ),
        (
            with_request("Unmounting"),
            Some(guest("MemoryDumpCompleted")),
            "->-",
        ),
        (with_request("Unmounting"), Some(leaving()), "->-"),
        (with_request("Unmounting"), running(), "->Completed"),
        (with_request("Unmounting"), None, "->Completed"),
        (with_request("Completed"), running(), "->-"),
        (
            with_request("Failed"),
            Some(guest("MemoryDumpFailed")),
            "->-",
        ),
        (
            with_request("Dissociating"),
            Some(guest("MemoryDumpInProgress")),
            "->-",
        ),
        (with_request("Dissociating"), Some(leaving()), "->-"),
        (with_request("Dissociating"), running(), "dissociate>none"),
        (with_request("Dissociating"), None, "dissociate>none"),
        (without_volume("Dissociating"), None, "->none"),
        (
            removed(with_request("Completed")),
            running(),
            "dissociate>none",
        ),
        (
            removed(with_request("InProgress")),
            Some(leaving()),
            "->Dissociating",
        ),
        (vm("Always"), running(), "->-"),
    ] {
        let case = format!(
            "{} {:?}",
            vm["status"],
            vmi.as_ref().map(|vmi| &vmi["status"])
        );
        assert_eq!(shown(&observe(vm, vmi)), expected, "{case}");
    }
}

#[test]
fn request_gets_what_the_guest_reports() {
    let complete = observe(
        with_request("InProgress"),
        Some(guest("MemoryDumpCompleted")),
    );
    let next = request_after(&complete);
    let expected = json!({
        "claimName": "c", "phase": "Unmounting", "fileName": "f",
        "startTimestamp": "2026-11-21T11:00:00Z", "endTimestamp": "2026-11-21T11:00:05Z",
    });
    assert_eq!(json!(next), expected);
    // A merge patch has to say what is not there.
    let patch = status_patch(Some(&next));
    assert_eq!(patch["memoryDumpRequest"]["message"], Value::Null);
    assert!(
        patch["memoryDumpRequest"]
            .as_object()
            .unwrap()
            .contains_key("message")
    );
    assert_eq!(status_patch(None), json!({"memoryDumpRequest": null}));
    let failed = observe(with_request("InProgress"), Some(guest("MemoryDumpFailed")));
    let next = request_after(&failed);
    assert_eq!(next.message.as_deref(), Some("no space"));
    assert_eq!(next.file_name, None);
}

#[test]
fn guest_has_the_volume_only_while_the_dump_is_made() {
    for (phase, vmi, is_wanted) in [
        ("Associating", Some(vmi("Running")), true),
        ("Associating", Some(guest("MemoryDumpCompleted")), false),
        ("InProgress", Some(guest("MemoryDumpInProgress")), true),
        ("InProgress", None, true),
        ("Unmounting", Some(guest("MemoryDumpCompleted")), false),
        ("Completed", None, false),
        ("Failed", Some(guest("MemoryDumpFailed")), false),
        ("Dissociating", Some(guest("MemoryDumpInProgress")), false),
    ] {
        let observed = observe(with_request(phase), vmi);
        let live = live_template(&observed.vm, observed.own_vmi().map(AsRef::as_ref));
        let has_volume = live["spec"]["volumes"] == json!([volume()]);
        assert_eq!(has_volume, is_wanted, "{phase}");
        let is_changed = plan(&observed).steps.contains(&Step::PlugVolumes);
        let vmi = observed.own_vmi();
        let is_behind = vmi.is_some_and(|vmi| vmi.plugs.is_empty() == is_wanted);
        assert_eq!(is_changed, is_behind, "{phase}");
    }
    // The next start makes no second dump.
    let observed = observe(with_request("Completed"), None);
    assert_eq!(
        template::vmi(&observed.vm, &[])["spec"]["volumes"],
        json!([])
    );
    // Without a request, the volume is what its user wrote.
    let own = observe(with_volume(vm("Always"), &volume()), None);
    assert_eq!(
        template::vmi(&own.vm, &[])["spec"]["volumes"],
        json!([volume()])
    );
}

#[test]
fn template_gets_and_loses_the_volume_of_the_dump_alone() {
    let root = json!({"name": "root", "containerDisk": {"image": "i"}});
    let observed = observe(with_volume(without_volume("Associating"), &root), None);
    let request = observed.vm.status().memory_dump_request.clone().unwrap();
    let with = volumes_patch(&observed.vm, &request, &Change::Associate);
    assert_eq!(with, json!({"volumes": [root, volume()]}));
    let observed = observe(with_volume(with_request("Dissociating"), &root), None);
    let without = volumes_patch(&observed.vm, &request, &Change::Dissociate);
    assert_eq!(without, json!({"volumes": [root]}));
}
