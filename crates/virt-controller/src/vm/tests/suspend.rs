//! Guests whose state is saved, and which go on from it.

use serde_json::{Value, json};

use super::{observe, set, vm, vmi};
use crate::vm::observe::Observed;
use crate::vm::plan::{Step, plan};
use crate::vm::suspend::{
    self, Change, Hold, Next, SavedClaim, claim, forget_patch, live_template, restore_into,
};

const CLAIM: &str = "a-saved-vmi-uid";

fn with_state(status: &str, reason: &str) -> Value {
    let condition = json!([{"type": "Suspended", "status": status, "reason": reason}]);
    set(vm("Always"), "/status/conditions", condition)
}

fn with_request(vm: Value, request: &Value) -> Value {
    set(vm, "/status/stateChangeRequests", json!([request]))
}

fn saved(mut observed: Observed, is_deleting: bool) -> Observed {
    observed.saved = vec![SavedClaim {
        name: CLAIM.to_owned(),
        is_deleting,
        guest: None,
    }];
    observed
}

/// A VMI that has ended with its state saved.
fn ended() -> Value {
    set(vmi("Succeeded"), "/status/reason", json!("Suspended"))
}

fn deleted(vmi: Value) -> Value {
    set(
        vmi,
        "/metadata/deletionTimestamp",
        json!("2026-11-21T11:59:00Z"),
    )
}

fn ran(vmi: Value) -> Value {
    let changes = json!([{"phase": "Running"}]);
    set(vmi, "/status/phaseTransitionTimestamps", changes)
}

/// A running guest whose volume for the state is in a phase.
fn saving(phase: &str) -> Value {
    let volume = json!({"name": "ferrovirt-saving", "memoryDump": {"claimName": CLAIM, "hotpluggable": true}});
    let guest = set(vmi("Running"), "/spec", json!({"volumes": [volume]}));
    let status = json!([{"name": "ferrovirt-saving", "target": "", "phase": phase,
                         "message": "no space", "hotplugVolume": {}}]);
    set(guest, "/status/volumeStatus", status)
}

/// The plan as text: `claim>-|keep`, `->Suspended|no`.
fn shown(observed: &Observed) -> String {
    let found = suspend::plan(observed);
    let change = match found.change {
        None => "-",
        Some(Change::CreateClaim) => "claim",
        Some(Change::DropClaims) => "drop",
        Some(Change::Forget) => "forget",
    };
    let next = match &found.next {
        Next::Stays => "-",
        Next::Gone => "none",
        Next::Is(state, _) => state.reason().as_str(),
    };
    let hold = match found.hold {
        Hold::No => "no",
        Hold::Keep => "keep",
        Hold::Stop => "stop",
        Hold::Resume => "resume",
    };
    format!("{change}>{next}|{hold}")
}

#[test]
fn only_the_running_guest_of_the_request_is_suspended() {
    let ask = |uid: &str| with_request(vm("Always"), &json!({"action": "Suspend", "uid": uid}));
    for (vm, vmi, expected) in [
        (vm("Always"), Some(vmi("Running")), "->-|no"),
        (ask("vmi-uid"), Some(vmi("Running")), "->Suspending|no"),
        (ask("other"), Some(vmi("Running")), "->-|no"),
        (ask("vmi-uid"), Some(vmi("Scheduled")), "->-|no"),
        (ask("vmi-uid"), Some(deleted(vmi("Running"))), "->-|no"),
        (ask("vmi-uid"), None, "->-|no"),
    ] {
        let observed = observe(vm, vmi);
        assert_eq!(shown(&observed), expected);
        // The request is done in any case.
        assert!(plan(&observed).requests.is_empty());
    }
}

#[test]
fn state_is_saved_or_the_guest_goes_on() {
    let suspending = || with_state("False", "Suspending");
    for (vmi, claim, expected) in [
        (Some(vmi("Running")), None, "claim>-|no"),
        (Some(vmi("Running")), Some(false), "->-|no"),
        // That of an earlier attempt.
        (Some(vmi("Running")), Some(true), "->-|no"),
        (Some(saving("MemoryDumpInProgress")), Some(false), "->-|no"),
        (
            Some(saving("MemoryDumpFailed")),
            Some(false),
            "->SuspendFailed|no",
        ),
        // Of an earlier attempt.
        (Some(saving("MemoryDumpFailed")), None, "->-|no"),
        // An older virt-handler.
        (
            Some(saving("MemoryDumpCompleted")),
            Some(false),
            "->SuspendFailed|no",
        ),
        (Some(ended()), Some(false), "->Suspended|keep"),
        (Some(deleted(ended())), Some(false), "->Suspended|keep"),
        (Some(vmi("Failed")), Some(false), "->SuspendFailed|no"),
        (Some(deleted(vmi("Running"))), Some(false), "->-|no"),
        (None, Some(false), "->SuspendFailed|no"),
    ] {
        let observed = observe(suspending(), vmi);
        let observed = match claim {
            Some(is_deleting) => saved(observed, is_deleting),
            None => observed,
        };
        assert_eq!(shown(&observed), expected, "{:?}", observed.vmi);
    }
    let waits = saved(observe(suspending(), Some(vmi("Running"))), true);
    assert!(suspend::plan(&waits).requeue_in.is_some());
    let failed = with_state("False", "SuspendFailed");
    let again = with_request(
        failed.clone(),
        &json!({"action": "Suspend", "uid": "vmi-uid"}),
    );
    let again = saved(observe(again, Some(vmi("Running"))), false);
    assert_eq!(shown(&again), "drop>Suspending|no");
    let left = saved(observe(failed.clone(), Some(vmi("Running"))), false);
    assert_eq!(shown(&left), "drop>-|no");
    assert_eq!(shown(&observe(failed, Some(vmi("Running")))), "->-|no");
}

#[test]
fn suspended_guest_starts_only_by_request() {
    let suspended = || with_state("True", "Suspended");
    let resume = || json!({"action": "Resume"});
    let discard = json!({"action": "Resume", "data": {"discardState": "true"}});
    for (vm, vmi, expected) in [
        (suspended(), None, "->-|keep"),
        (suspended(), Some(ended()), "->-|stop"),
        (suspended(), Some(deleted(ended())), "->-|keep"),
        (with_state("True", "ResumeFailed"), None, "->-|keep"),
        (
            with_state("True", "ResumeFailed"),
            Some(vmi("Failed")),
            "->-|stop",
        ),
        (
            with_request(suspended(), &resume()),
            None,
            "->Resuming|keep",
        ),
        // Before the pod has ended.
        (
            with_request(suspended(), &resume()),
            Some(ended()),
            "->Resuming|keep",
        ),
        (
            with_request(suspended(), &json!({"action": "Start"})),
            None,
            "->Resuming|keep",
        ),
        (with_request(suspended(), &discard), None, "drop>none|keep"),
    ] {
        let observed = saved(observe(vm, vmi), false);
        assert_eq!(shown(&observed), expected, "{:?}", observed.vmi);
        assert!(!plan(&observed).steps.contains(&Step::CreateVmi));
    }
}

#[test]
fn guest_goes_on_from_the_claim_once() {
    let resuming = || with_state("True", "Resuming");
    let halted = set(resuming(), "/spec/runStrategy", json!("Halted"));
    let failed = set(
        vmi("Failed"),
        "/status/conditions",
        json!([{"type": "Synchronized", "status": "False", "message": "other machine"}]),
    );
    for (vm, vmi, claim, expected) in [
        (resuming(), None, Some(false), "->-|resume"),
        (resuming(), None, None, "->ResumeFailed|keep"),
        (resuming(), None, Some(true), "->ResumeFailed|keep"),
        (halted, None, Some(false), "->Suspended|keep"),
        (resuming(), Some(ended()), Some(false), "->-|stop"),
        (resuming(), Some(deleted(ended())), Some(false), "->-|keep"),
        (resuming(), Some(vmi("Scheduled")), Some(false), "->-|no"),
        (
            resuming(),
            Some(vmi("Running")),
            Some(false),
            "forget>none|no",
        ),
        // It ran, so that its disks are newer than its state.
        (
            resuming(),
            Some(ran(vmi("Failed"))),
            Some(false),
            "forget>none|no",
        ),
        (
            resuming(),
            Some(failed.clone()),
            Some(false),
            "->ResumeFailed|keep",
        ),
        (
            resuming(),
            Some(deleted(vmi("Scheduled"))),
            Some(false),
            "->Suspended|keep",
        ),
    ] {
        let observed = observe(vm, vmi);
        let observed = match claim {
            Some(is_deleting) => saved(observed, is_deleting),
            None => observed,
        };
        assert_eq!(shown(&observed), expected, "{:?}", observed.vmi);
    }
    let observed = saved(observe(resuming(), Some(failed)), false);
    let Next::Is(_, message) = suspend::plan(&observed).next else {
        panic!("no message");
    };
    assert_eq!(message, "other machine");
    let observed = saved(observe(resuming(), None), false);
    assert!(plan(&observed).steps.contains(&Step::CreateVmi));
}

#[test]
fn running_guest_has_the_volume_only_while_its_state_is_saved() {
    for (state, is_deleting, expected) in [
        ("Suspending", false, 1),
        ("Suspending", true, 0),
        ("SuspendFailed", false, 0),
    ] {
        let vm = with_state("False", state);
        let observed = saved(observe(vm, Some(vmi("Running"))), is_deleting);
        let live = live_template(&observed, observed.vmi.as_deref().unwrap());
        let volumes = live.pointer("/spec/volumes").and_then(Value::as_array);
        assert_eq!(volumes.map_or(0, Vec::len), expected, "{state}");
    }
}

#[test]
fn claim_holds_the_memory_and_what_a_later_guest_must_have() {
    let observed = observe(vm("Always"), Some(vmi("Running")));
    let whole = json!({
        "spec": {
            "domain": {
                "memory": {"guest": "1Gi"},
                "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
            },
            "networks": [{"name": "default", "pod": {}}],
        },
        "status": {
            "machine": {"type": "pc-q35-10.0"},
            "interfaces": [{"name": "default", "mac": "02:00:00:00:00:01"}],
        },
    });
    let vmi = observed.vmi.as_deref().unwrap();
    let made = json!(claim(&observed.vm, vmi, &whole, Some("fast")));
    assert_eq!(made["metadata"]["name"], CLAIM);
    assert_eq!(
        made["metadata"]["labels"]["ferrovirt.io/suspended-vm"],
        "vm-uid"
    );
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "vm-uid");
    assert_eq!(made["spec"]["storageClassName"], "fast");
    assert_eq!(made["spec"]["resources"]["requests"]["storage"], "1224Mi");
    let guest = made["metadata"]["annotations"]["ferrovirt.io/suspended-guest"].clone();

    let mut later = json!({"spec": {"domain": {"devices": {}, "machine": {"type": "q35"}}}});
    let claim = SavedClaim {
        name: CLAIM.to_owned(),
        is_deleting: false,
        guest: guest.as_str().map(str::to_owned),
    };
    restore_into(&mut later, &claim);
    let spec = &later["spec"];
    assert_eq!(spec["domain"]["machine"]["type"], "pc-q35-10.0");
    let interface = &spec["domain"]["devices"]["interfaces"][0];
    assert_eq!(interface["macAddress"], "02:00:00:00:00:01");
    assert_eq!(spec["networks"][0]["name"], "default");
    let volume = json!({"name": "ferrovirt-saved-state", "memoryDump": {"claimName": CLAIM}});
    assert_eq!(spec["volumes"], json!([volume]));
    let patch = forget_patch(&later).unwrap();
    assert_eq!(patch["spec"]["volumes"], json!([]));
    assert_eq!(forget_patch(&json!({"spec": {"volumes": []}})), None);
}

#[test]
fn failed_resume_is_no_failed_start() {
    let failure = |vm: Value| plan(&observe(vm, Some(vmi("Failed")))).start_failure;
    assert!(failure(vm("Always")).is_some());
    for state in ["Resuming", "ResumeFailed"] {
        assert_eq!(failure(with_state("True", state)), None, "{state}");
    }
}

#[test]
fn guest_that_differs_from_its_vm_is_not_suspended() {
    let guest = |sockets: u32, current: u32, requested: &str| {
        let mut guest = vmi("Running");
        guest["spec"]["domain"] = json!({
            "cpu": {"sockets": sockets, "maxSockets": 4}, "devices": {},
            "memory": {"guest": requested, "maxGuest": "4Gi"},
        });
        guest["status"]["currentCPUTopology"] = json!({"sockets": current});
        guest["status"]["memory"] = json!({"guestAtBoot": "1Gi", "guestRequested": requested});
        guest
    };
    let mut marked = guest(1, 1, "1Gi");
    marked["metadata"]["annotations"]["ferrovirt.io/memory-changed"] = "true".into();
    for (guest, expected) in [
        (guest(1, 1, "1Gi"), "claim>-|no"),
        (guest(2, 1, "1Gi"), "->SuspendFailed|no"),
        (guest(1, 2, "1Gi"), "->SuspendFailed|no"),
        (guest(1, 1, "2Gi"), "->SuspendFailed|no"),
        // All of it was given back, but the device for it stays.
        (marked, "->SuspendFailed|no"),
    ] {
        let observed = observe(with_state("False", "Suspending"), Some(guest.clone()));
        assert_eq!(shown(&observed), expected, "{guest}");
    }
}
