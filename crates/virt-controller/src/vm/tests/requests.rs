//! Plans for requests to start and stop.

use kubevirt_api::vm_status::{
    StateChangeRequestAction as Action, VirtualMachineStateChangeRequest as Request,
};
use serde_json::json;

use super::{NOW, observe, set, vm, vmi};
use crate::vm::plan::{Step, plan};
use crate::vm::template;

#[test]
fn new_vm_gets_its_finalizer_before_its_instance() {
    let vm = set(vm("Always"), "/metadata/finalizers", json!([]));
    assert_eq!(
        plan(&observe(vm, None)).steps,
        [Step::AddFinalizer, Step::CreateVmi]
    );
}

#[test]
fn start_request_with_pause_starts_paused() {
    let request = json!([{"action": "Start", "data": {"paused": "true"}}]);
    let observed = observe(
        set(vm("Manual"), "/status/stateChangeRequests", request),
        None,
    );
    let plan = plan(&observed);
    assert_eq!(plan.steps, [Step::CreateVmi]);
    let vmi = template::vmi(&observed.vm, &plan.requests);
    assert_eq!(vmi["spec"]["startStrategy"], "Paused");
}

#[test]
fn stop_and_start_requests_are_handled_in_order() {
    let path = "/status/stateChangeRequests";
    let both = json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]);
    let vm = set(vm("Manual"), path, both);

    let first = plan(&observe(vm.clone(), Some(vmi("Running"))));
    assert_eq!(
        (first.steps.as_slice(), first.requests.len()),
        (&[Step::DeleteVmi][..], 2)
    );

    let gone = plan(&observe(vm.clone(), None));
    assert_eq!(
        (gone.steps.as_slice(), gone.requests.len()),
        (&[Step::CreateVmi][..], 1)
    );

    let fresh = set(vmi("Pending"), "/metadata/uid", json!("vmi-uid-2"));
    let started = plan(&observe(vm, Some(fresh)));
    assert_eq!((started.steps.len(), started.requests.len()), (0, 0));
}

#[test]
fn failed_vmi_is_restarted_through_a_request() {
    let vm = vm("RerunOnFailure");
    let first = plan(&observe(vm.clone(), Some(vmi("Failed"))));
    assert_eq!((first.steps.len(), first.requests.len()), (0, 1));
    let vm = set(
        vm,
        "/status/stateChangeRequests",
        json!([{"action": "Start"}]),
    );
    assert_eq!(
        plan(&observe(vm.clone(), Some(vmi("Failed")))).steps,
        [Step::DeleteVmi]
    );
    assert_eq!(plan(&observe(vm, None)).steps, [Step::CreateVmi]);
}

#[test]
fn requests_without_effect_are_dropped() {
    let start = json!({"action": "Start"});
    let both = json!([{"action": "Stop", "uid": "vmi-uid"}, start]);
    let start = json!([start]);
    let ending = set(vmi("Running"), "/metadata/deletionTimestamp", json!(NOW));
    let cases = [
        // Requested before the strategy was changed.
        ("Once", &both, vmi("Running"), 0),
        ("WaitAsReceiver", &both, vmi("Running"), 0),
        ("Manual", &both, vmi("Running"), 2),
        ("Halted", &start, vmi("Failed"), 0),
        ("Halted", &start, ending.clone(), 0),
        ("Manual", &start, ending, 1),
        // The requested guest has ended already.
        ("Manual", &start, vmi("Failed"), 0),
        ("RerunOnFailure", &start, vmi("Succeeded"), 0),
        ("RerunOnFailure", &start, vmi("Failed"), 1),
    ];
    for (strategy, requests, vmi, left) in cases {
        let vm = set(
            vm(strategy),
            "/status/stateChangeRequests",
            requests.clone(),
        );
        let found = plan(&observe(vm, Some(vmi))).requests.len();
        assert_eq!(found, left, "{strategy} {requests}");
    }
}

/// A restart that was asked for right before the guest went to another VM: it must not run twice.
#[test]
fn start_is_not_kept_for_a_guest_that_has_left_for_another_vm() {
    let gone = || {
        let ended = set(vmi("Succeeded"), "/metadata/deletionTimestamp", json!(NOW));
        let end = |uid: &str| json!({"virtualMachineInstanceUID": uid});
        let state = json!({"migrationUid": "m", "completed": true,
            "sourceState": end("vmi-uid"), "targetState": end("other")});
        set(ended, "/status/migrationState", state)
    };
    let requests = json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]);
    for strategy in ["Halted", "Manual", "Always"] {
        let asked = vm(strategy);
        let asked = set(asked, "/status/stateChangeRequests", requests.clone());
        let found = plan(&observe(asked, Some(gone())));
        let starts = |request: &Request| request.action == Action::Start;
        assert!(!found.requests.iter().any(starts), "{strategy}");
        // Until that is written, the VMI says why.
        assert!(!found.steps.contains(&Step::ReleaseVmi), "{strategy}");
    }
    let found = plan(&observe(vm("Halted"), Some(gone())));
    assert!(found.steps.contains(&Step::ReleaseVmi));
}
