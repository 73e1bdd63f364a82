//! The table of strategies, and plans and statuses for states of a VM.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vm_status::VirtualMachinePrintableStatus as Printable;
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::{Step, backoff_seconds, plan};
use super::status::{self, Done};
use super::strategy::{Asked, Guest, History, Strategy, decide};
use super::template;
use crate::view::Vm;

const NOW: &str = "2026-11-21T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A VM with a strategy; finalizer and old status set as after its first passes.
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

fn see(vm: Value, vmi: Option<Value>) -> Observed {
    let read_vmi = |vmi| serde_json::from_value::<VirtualMachineInstance>(vmi).unwrap();
    Observed {
        vm: Arc::new(serde_json::from_value::<Vm>(vm).unwrap()),
        vmi: vmi.map(read_vmi).map(Arc::new),
        now: now(),
    }
}

fn printable(seen: &Observed, done: &Done) -> Printable {
    let plan = plan(seen);
    status::render(seen, &plan, done).printable_status.unwrap()
}

#[test]
fn strategies_guests_and_requests_over_the_whole_product() {
    use {Asked as A, Guest as G, Strategy as S};
    let mut table = Vec::new();
    for history in [History::New, History::Known] {
        for strategy in [
            S::Always,
            S::RerunOnFailure,
            S::Manual,
            S::Halted,
            S::Once,
            S::Unclear,
        ] {
            for guest in [G::Absent, G::Live, G::Succeeded, G::Failed, G::Ending] {
                let row = [A::Nothing, A::Stop, A::Start].map(|asked| {
                    let step = decide(strategy, guest, asked, history);
                    format!("{asked:?}={step:?}")
                });
                let case = format!("{history:?} {strategy:?} {guest:?}:");
                table.push(format!("{case:<32} {}", row.join(" ")));
            }
        }
    }
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn running_is_an_old_way_to_say_always_or_halted() {
    let cases = [
        (json!({"running": true}), Strategy::Always),
        (json!({"running": false}), Strategy::Halted),
        (
            json!({"running": false, "runStrategy": ""}),
            Strategy::Halted,
        ),
        (json!({"runStrategy": "Once"}), Strategy::Once),
        (json!({}), Strategy::Unclear),
        (
            json!({"running": true, "runStrategy": "Always"}),
            Strategy::Unclear,
        ),
        (json!({"runStrategy": "WaitAsReceiver"}), Strategy::Unclear),
    ];
    for (spec, strategy) in cases {
        let spec = serde_json::from_value(spec).unwrap();
        assert_eq!(Strategy::of(&spec), strategy);
    }
}

#[test]
fn new_vm_gets_its_finalizer_before_its_instance() {
    let vm = set(vm("Always"), "/metadata/finalizers", json!([]));
    assert_eq!(
        plan(&see(vm, None)).steps,
        [Step::AddFinalizer, Step::CreateVmi]
    );
}

#[test]
fn instance_is_the_template_with_what_is_unknown_to_us() {
    let seen = see(set(vm("Always"), "/spec/running", Value::Null), None);
    insta::assert_json_snapshot!(template::vmi(&seen.vm, &[]));
}

#[test]
fn start_request_with_pause_starts_paused() {
    let request = json!([{"action": "Start", "data": {"paused": "true"}}]);
    let seen = see(
        set(vm("Manual"), "/status/stateChangeRequests", request),
        None,
    );
    let plan = plan(&seen);
    assert_eq!(plan.steps, [Step::CreateVmi]);
    let vmi = template::vmi(&seen.vm, &plan.requests);
    assert_eq!(vmi["spec"]["startStrategy"], "Paused");
}

#[test]
fn stop_and_start_request_is_worked_off_in_order() {
    let path = "/status/stateChangeRequests";
    let both = json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]);
    let vm = set(vm("Manual"), path, both);

    let first = plan(&see(vm.clone(), Some(vmi("Running"))));
    assert_eq!(
        (first.steps.as_slice(), first.requests.len()),
        (&[Step::DeleteVmi][..], 2)
    );

    let gone = plan(&see(vm.clone(), None));
    assert_eq!(
        (gone.steps.as_slice(), gone.requests.len()),
        (&[Step::CreateVmi][..], 1)
    );

    let fresh = set(vmi("Pending"), "/metadata/uid", json!("vmi-uid-2"));
    let started = plan(&see(vm, Some(fresh)));
    assert_eq!((started.steps.len(), started.requests.len()), (0, 0));
}

#[test]
fn failed_instance_is_restarted_by_way_of_a_request() {
    let vm = vm("RerunOnFailure");
    let first = plan(&see(vm.clone(), Some(vmi("Failed"))));
    assert_eq!((first.steps.len(), first.requests.len()), (0, 1));
    let vm = set(
        vm,
        "/status/stateChangeRequests",
        json!([{"action": "Start"}]),
    );
    assert_eq!(
        plan(&see(vm.clone(), Some(vmi("Failed")))).steps,
        [Step::DeleteVmi]
    );
    assert_eq!(plan(&see(vm, None)).steps, [Step::CreateVmi]);
}

#[test]
fn instance_that_never_ran_is_counted_once_and_delays_the_next() {
    let seen = see(vm("Always"), Some(vmi("Failed")));
    let counted = plan(&seen);
    let failure = counted.start_failure.clone().unwrap();
    assert_eq!(failure.consecutive_fail_count, Some(1));
    assert_eq!(failure.last_failed_vmi_uid.as_deref(), Some("vmi-uid"));

    let vm = set(vm("Always"), "/status/startFailure", json!(failure));
    let again = plan(&see(vm.clone(), Some(vmi("Failed"))));
    assert_eq!(again.start_failure, Some(failure));

    let waiting = see(vm.clone(), None);
    let waiting_plan = plan(&waiting);
    assert!(waiting_plan.steps.is_empty());
    let wait = waiting_plan.look_again_in.unwrap();
    assert!(
        wait >= Duration::from_secs(10) && wait <= Duration::from_secs(15),
        "{wait:?}"
    );
    assert_eq!(
        printable(&waiting, &Done::default()),
        Printable::CrashLoopBackOff
    );

    let mut later = see(vm, None);
    later.now = now() + jiff::SignedDuration::from_secs(16);
    assert_eq!(plan(&later).steps, [Step::CreateVmi]);
}

#[test]
fn instance_that_ran_clears_the_count() {
    let failure = json!({"consecutiveFailCount": 2, "lastFailedVMIUID": "old"});
    let vm = set(vm("Always"), "/status/startFailure", failure);
    let ran = json!([{"phase": "Running", "phaseTransitionTimestamp": NOW}]);
    let vmi = set(vmi("Failed"), "/status/phaseTransitionTimestamps", ran);
    assert_eq!(plan(&see(vm, Some(vmi))).start_failure, None);
}

#[test]
fn delay_grows_with_the_square_up_to_five_minutes() {
    for (count, least, most) in [
        (1, 10, 15),
        (2, 40, 60),
        (3, 90, 135),
        (5, 250, 300),
        (9, 300, 300),
    ] {
        for uid in ["a", "b", "c", "d"] {
            let seconds = backoff_seconds(count, uid);
            assert!((least..=most).contains(&seconds), "{count}: {seconds}");
        }
    }
}

#[test]
fn switch_to_rerun_under_back_off_still_starts_later() {
    let failure = json!({"consecutiveFailCount": 1, "lastFailedVMIUID": "old",
                         "retryAfterTimestamp": "2026-11-21T12:00:10Z"});
    let vm = set(vm("RerunOnFailure"), "/status/runStrategy", json!("Always"));
    let vm = set(vm, "/status/startFailure", failure);
    let seen = see(vm, None);
    let plan = plan(&seen);
    assert_eq!(plan.look_again_in, Some(Duration::from_secs(10)));
    let status = status::render(&seen, &plan, &Done::default());
    assert_eq!(status.run_strategy.unwrap().as_str(), "Always");
}

#[test]
fn deleted_vm_waits_for_its_instance() {
    let vm = set(vm("Always"), "/metadata/deletionTimestamp", json!(NOW));
    let first = see(vm.clone(), Some(vmi("Running")));
    assert_eq!(plan(&first).steps, [Step::DeleteVmi]);
    assert_eq!(printable(&first, &Done::default()), Printable::Terminating);

    let going = set(vmi("Running"), "/metadata/deletionTimestamp", json!(NOW));
    assert!(plan(&see(vm.clone(), Some(going.clone()))).steps.is_empty());

    let over = set(going, "/status/phase", json!("Succeeded"));
    assert_eq!(plan(&see(vm.clone(), Some(over))).steps, [Step::ReleaseVmi]);

    assert_eq!(plan(&see(vm, None)).steps, [Step::RemoveFinalizer]);
}

#[test]
fn orphaning_deletion_leaves_the_instance_running() {
    let finalizers = json!(["orphan", "kubevirt.io/virtualMachineControllerFinalize"]);
    let vm = set(vm("Always"), "/metadata/deletionTimestamp", json!(NOW));
    let vm = set(vm, "/metadata/finalizers", finalizers);
    let steps = plan(&see(vm, Some(vmi("Running")))).steps;
    assert_eq!(steps, [Step::ReleaseVmi, Step::RemoveFinalizer]);
}

#[test]
fn instance_of_nobody_is_adopted_and_that_of_another_reported() {
    let orphan = set(vmi("Running"), "/metadata/ownerReferences", json!([]));
    assert_eq!(plan(&see(vm("Always"), Some(orphan))).steps, [Step::Adopt]);
    let foreign = set(
        vmi("Running"),
        "/metadata/ownerReferences/0/uid",
        json!("other"),
    );
    let seen = see(vm("Always"), Some(foreign));
    let plan = plan(&seen);
    assert!(plan.steps.is_empty() && plan.blocked.is_some());
    assert_eq!(printable(&seen, &Done::default()), Printable::Stopped);
}

#[test]
fn what_is_not_supported_yet_blocks_the_start_with_its_fields() {
    let sized = set(
        vm("Always"),
        "/spec/instancetype",
        json!({"name": "u1.small"}),
    );
    let with_data = set(
        sized.clone(),
        "/spec/dataVolumeTemplates",
        json!([{"metadata": {"name": "a"}, "spec": {}}]),
    );
    for (vm, fields) in [
        (sized, &["spec.instancetype"][..]),
        (
            with_data,
            &["spec.instancetype", "spec.dataVolumeTemplates[0]"],
        ),
        (vm("WaitAsReceiver"), &["spec.runStrategy: use Always"]),
    ] {
        let seen = see(vm, None);
        let plan = plan(&seen);
        assert!(plan.steps.is_empty(), "{:?}", plan.steps);
        let blocked = plan.blocked.expect("blocked");
        assert_eq!(blocked.reason, "FeatureNotSupported");
        for field in fields {
            assert!(blocked.message.contains(field), "{}", blocked.message);
        }
    }
}

#[test]
fn instance_that_cannot_run_shows_as_unschedulable() {
    let conditions = json!([
        {"type": "Synchronized", "status": "False", "reason": "FeatureNotSupported"},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
    ]);
    let waiting = set(vmi("Pending"), "/status/conditions", conditions);
    let seen = see(vm("Always"), Some(waiting));
    assert_eq!(
        printable(&seen, &Done::default()),
        Printable::ErrorUnschedulable
    );
}

#[test]
fn printable_status_takes_the_first_match() {
    let conditions = |list: Value| set(vmi("Scheduling"), "/status/conditions", list);
    let not_synchronized = |reason: &str| {
        conditions(json!([{"type": "Synchronized", "status": "False", "reason": reason}]))
    };
    let paused = json!([{"type": "Paused", "status": "True", "reason": "PausedByUser"}]);
    let deleting = |phase| set(vmi(phase), "/metadata/deletionTimestamp", json!(NOW));
    let cases = [
        (None, Printable::Stopped),
        (Some(vmi("")), Printable::Starting),
        (Some(vmi("Pending")), Printable::Starting),
        (Some(vmi("Scheduling")), Printable::Starting),
        (Some(vmi("Scheduled")), Printable::Starting),
        (Some(vmi("Running")), Printable::Running),
        (
            Some(set(vmi("Running"), "/status/conditions", paused)),
            Printable::Paused,
        ),
        (
            Some(set(
                vmi("Running"),
                "/status/migrationState",
                json!({"startTimestamp": NOW}),
            )),
            Printable::Migrating,
        ),
        (Some(deleting("Running")), Printable::Stopping),
        (Some(deleting("Pending")), Printable::Stopping),
        (Some(vmi("Succeeded")), Printable::Stopped),
        (Some(vmi("Failed")), Printable::Stopped),
        (
            Some(not_synchronized("ErrImagePull")),
            Printable::ErrImagePull,
        ),
        (
            Some(not_synchronized("ImagePullBackOff")),
            Printable::ImagePullBackOff,
        ),
        (
            Some(not_synchronized("FailedPvcNotFound")),
            Printable::ErrorPvcNotFound,
        ),
        (
            Some(conditions(json!([
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            ]))),
            Printable::ErrorUnschedulable,
        ),
        (Some(vmi("WaitingForSync")), Printable::Unknown),
    ];
    for (vmi, expected) in cases {
        let text = format!("{vmi:?}");
        let seen = see(vm("Manual"), vmi);
        assert_eq!(printable(&seen, &Done::default()), expected, "{text}");
    }
    let created = Done {
        created: true,
        ..Done::default()
    };
    assert_eq!(
        printable(&see(vm("Always"), None), &created),
        Printable::Starting
    );
}

#[test]
fn status_of_a_running_vm_mirrors_its_instance() {
    let conditions = json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": NOW},
        {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"},
    ]);
    let old = json!([{"type": "Paused", "status": "True"}, {"type": "Failure", "status": "True"}]);
    let vmi = set(vmi("Running"), "/status/conditions", conditions);
    let seen = see(set(vm("Always"), "/status/conditions", old), Some(vmi));
    let status = status::render(&seen, &plan(&seen), &Done::default());
    insta::assert_json_snapshot!(status);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let seen = see(vm("Always"), Some(vmi("Running")));
    let rendered = status::render(&seen, &plan(&seen), &Done::default());
    let key = reconcile::Key::new("default", "a");
    assert!(status::fragment(&seen.vm, &key, &rendered).is_some());
    let vm = set(vm("Always"), "/status", json!(rendered));
    let again = see(vm, Some(vmi("Running")));
    let rendered = status::render(&again, &plan(&again), &Done::default());
    assert_eq!(status::fragment(&again.vm, &key, &rendered), None);
}
