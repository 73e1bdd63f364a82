//! The table of strategies, and plans and statuses for states of a VM.

mod templates;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::cluster_config::InstancetypeReferencePolicy as Policy;
use kubevirt_api::vm_status::{VirtualMachinePrintableStatus as Printable, VirtualMachineStatus};
use serde_json::{Value, json};

use super::data_volumes::Importer;
use super::instancetype::{ChoiceStep, Instance, choice_step};
use super::observe::Observed;
use super::plan::{Restart, Step, backoff_seconds, plan};
use super::printable::ROWS;
use super::revision;
use super::status::{self, Done};
use super::strategy::{self, Decision, History, Requested, Strategy, decide};
use super::template;
use crate::view::{Claim, DataVolume, Guest, Vm};

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
        templates: Vec::new(),
        importer: Importer::Installed,
        started_from: None,
        choice: ChoiceStep::Nothing,
        now: now(),
    }
}

fn printable(observed: &Observed, done: &Done) -> Printable {
    let plan = plan(observed);
    status::render(observed, &plan, done)
        .printable_status
        .unwrap()
}

/// Events in the life of a VM, and the decision of each strategy.
struct Event {
    name: &'static str,
    guest: &'static [strategy::Guest],
    requested: &'static [Requested],
    history: &'static [History],
    moves: [Decision; 7],
}

const STRATEGIES: [Strategy; 7] = [
    Strategy::Always,
    Strategy::RerunOnFailure,
    Strategy::Manual,
    Strategy::Halted,
    Strategy::Once,
    Strategy::WaitAsReceiver,
    Strategy::Unknown,
];

fn events() -> Vec<Event> {
    use Decision::{RequestStart as Ask, Start as Run, Stay, Stop, SwitchToAlways as Switch};
    use History as H;
    use Requested as A;
    use strategy::Guest as G;
    const ANY: &[History] = &[H::New, H::Known];
    let event = |name, guest, requested, history, moves| Event {
        name,
        guest,
        requested,
        history,
        moves,
    };
    vec![
        // A stop request without a guest is dropped before; it would have no effect.
        event(
            "the VM is new and has no VMI",
            &[G::Absent],
            &[A::Nothing, A::Stop],
            &[H::New],
            [Run, Run, Stay, Stay, Run, Run, Stay],
        ),
        event(
            "the VMI was deleted",
            &[G::Absent],
            &[A::Nothing, A::Stop],
            &[H::Known],
            [Run, Stay, Stay, Stay, Run, Run, Stay],
        ),
        event(
            "a start is requested",
            &[G::Absent],
            &[A::Start],
            ANY,
            [Run, Run, Run, Switch, Run, Run, Stay],
        ),
        // A start request for a running guest is dropped before.
        event(
            "the guest runs",
            &[G::Live],
            &[A::Nothing, A::Start],
            ANY,
            [Stay, Stay, Stay, Stop, Stay, Stay, Stay],
        ),
        event(
            "a stop of this guest is requested",
            &[G::Live, G::Succeeded, G::Failed],
            &[A::Stop],
            ANY,
            [Stop, Stop, Stop, Stop, Stay, Stay, Stay],
        ),
        event(
            "the guest shut down",
            &[G::Succeeded],
            &[A::Nothing, A::Start],
            ANY,
            [Stop, Stop, Stay, Stop, Stay, Stay, Stay],
        ),
        event(
            "the guest crashed",
            &[G::Failed],
            &[A::Nothing],
            ANY,
            [Stop, Ask, Stay, Stop, Stay, Stay, Stay],
        ),
        event(
            "the guest crashed and the next start is recorded",
            &[G::Failed],
            &[A::Start],
            ANY,
            [Stop, Stop, Stay, Stop, Stay, Stay, Stay],
        ),
        event(
            "the VMI is being deleted",
            &[G::Ending],
            &[A::Nothing, A::Stop, A::Start],
            ANY,
            [Stay; 7],
        ),
    ]
}

#[test]
fn decisions_match_the_table() {
    use strategy::Guest as G;
    let events = events();
    let mut cells = 0;
    for history in [History::New, History::Known] {
        for guest in [G::Absent, G::Live, G::Succeeded, G::Failed, G::Ending] {
            for requested in [Requested::Nothing, Requested::Stop, Requested::Start] {
                let names = |event: &&Event| {
                    event.guest.contains(&guest)
                        && event.requested.contains(&requested)
                        && event.history.contains(&history)
                };
                let named: Vec<&Event> = events.iter().filter(names).collect();
                let [event] = named[..] else {
                    panic!(
                        "{} events name {guest:?} {requested:?} {history:?}",
                        named.len()
                    );
                };
                for (strategy, expected) in STRATEGIES.into_iter().zip(event.moves) {
                    let found = decide(strategy, guest, requested, history);
                    let cell = format!("{}: {strategy:?} {guest:?} {requested:?}", event.name);
                    assert_eq!(found, expected, "{cell} {history:?}");
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(cells, 2 * 5 * 3 * 7);
}

#[test]
fn running_means_always_or_halted() {
    let cases = [
        (json!({"running": true}), Strategy::Always),
        (json!({"running": false}), Strategy::Halted),
        (
            json!({"running": false, "runStrategy": ""}),
            Strategy::Halted,
        ),
        (json!({"runStrategy": "Once"}), Strategy::Once),
        (json!({}), Strategy::Unknown),
        (
            json!({"running": true, "runStrategy": "Always"}),
            Strategy::Unknown,
        ),
        (
            json!({"runStrategy": "WaitAsReceiver"}),
            Strategy::WaitAsReceiver,
        ),
        (json!({"runStrategy": "Sometimes"}), Strategy::Unknown),
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
        plan(&observe(vm, None)).steps,
        [Step::AddFinalizer, Step::CreateVmi]
    );
}

#[test]
fn vmi_is_the_template_with_unknown_fields() {
    let observed = observe(set(vm("Always"), "/spec/running", Value::Null), None);
    insta::assert_json_snapshot!(template::vmi(&observed.vm, &[]));
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

#[test]
fn failed_start_is_counted_once_and_delays_the_next() {
    let observed = observe(vm("Always"), Some(vmi("Failed")));
    let counted = plan(&observed);
    let failure = counted.start_failure.clone().unwrap();
    assert_eq!(failure.consecutive_fail_count, Some(1));
    assert_eq!(failure.last_failed_vmi_uid.as_deref(), Some("vmi-uid"));

    let vm = set(vm("Always"), "/status/startFailure", json!(failure));
    let again = plan(&observe(vm.clone(), Some(vmi("Failed"))));
    assert_eq!(again.start_failure, Some(failure));

    let waiting = observe(vm.clone(), None);
    let waiting_plan = plan(&waiting);
    assert!(waiting_plan.steps.is_empty());
    let wait = waiting_plan.requeue_in.unwrap();
    assert!(
        wait >= Duration::from_secs(10) && wait <= Duration::from_secs(15),
        "{wait:?}"
    );
    assert_eq!(
        printable(&waiting, &Done::default()),
        Printable::CrashLoopBackOff
    );

    let mut later = observe(vm, None);
    later.now = now() + jiff::SignedDuration::from_secs(16);
    assert_eq!(plan(&later).steps, [Step::CreateVmi]);
}

#[test]
fn instance_that_ran_clears_the_count() {
    let failure = json!({"consecutiveFailCount": 2, "lastFailedVMIUID": "old"});
    let vm = set(vm("Always"), "/status/startFailure", failure);
    let ran = json!([{"phase": "Running", "phaseTransitionTimestamp": NOW}]);
    let vmi = set(vmi("Failed"), "/status/phaseTransitionTimestamps", ran);
    assert_eq!(plan(&observe(vm, Some(vmi))).start_failure, None);
}

#[test]
fn succeeded_guest_is_not_a_failed_start() {
    let failure = json!({"consecutiveFailCount": 2, "lastFailedVMIUID": "old"});
    let vm = set(vm("RerunOnFailure"), "/status/startFailure", failure);
    let ended = plan(&observe(vm, Some(vmi("Succeeded"))));
    assert_eq!(
        (ended.start_failure, ended.steps),
        (None, vec![Step::DeleteVmi])
    );
    // A strategy that starts it again must back off.
    let always = plan(&observe(self::vm("Always"), Some(vmi("Succeeded"))));
    assert!(always.start_failure.is_some());
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
    let observed = observe(vm, None);
    let plan = plan(&observed);
    assert_eq!(plan.requeue_in, Some(Duration::from_secs(10)));
    let status = status::render(&observed, &plan, &Done::default());
    assert_eq!(status.run_strategy.unwrap().as_str(), "Always");
}

#[test]
fn deleted_vm_waits_for_its_instance() {
    let vm = set(vm("Always"), "/metadata/deletionTimestamp", json!(NOW));
    let first = observe(vm.clone(), Some(vmi("Running")));
    assert_eq!(plan(&first).steps, [Step::DeleteVmi]);
    assert_eq!(printable(&first, &Done::default()), Printable::Terminating);

    let going = set(vmi("Running"), "/metadata/deletionTimestamp", json!(NOW));
    assert!(
        plan(&observe(vm.clone(), Some(going.clone())))
            .steps
            .is_empty()
    );

    let over = set(going, "/status/phase", json!("Succeeded"));
    assert_eq!(
        plan(&observe(vm.clone(), Some(over))).steps,
        [Step::ReleaseVmi]
    );

    assert_eq!(plan(&observe(vm, None)).steps, [Step::RemoveFinalizer]);
}

#[test]
fn orphaning_deletion_leaves_the_instance_running() {
    let finalizers = json!(["orphan", "kubevirt.io/virtualMachineControllerFinalize"]);
    let vm = set(vm("Always"), "/metadata/deletionTimestamp", json!(NOW));
    let vm = set(vm, "/metadata/finalizers", finalizers);
    let steps = plan(&observe(vm, Some(vmi("Running")))).steps;
    assert_eq!(steps, [Step::ReleaseVmi, Step::RemoveFinalizer]);
}

#[test]
fn unowned_vmi_is_adopted_and_foreign_vmi_is_reported() {
    let orphan = set(vmi("Running"), "/metadata/ownerReferences", json!([]));
    assert_eq!(
        plan(&observe(vm("Always"), Some(orphan))).steps,
        [Step::Adopt]
    );
    let foreign = set(
        vmi("Running"),
        "/metadata/ownerReferences/0/uid",
        json!("other"),
    );
    let observed = observe(vm("Always"), Some(foreign));
    let plan = plan(&observed);
    assert!(plan.steps.is_empty() && plan.blocked.is_some());
    assert_eq!(printable(&observed, &Done::default()), Printable::Stopped);
}

#[test]
fn choice_is_resolved_before_the_start() {
    let chosen = set(vm("Always"), "/spec/instancetype", json!({"name": "small"}));
    let steps = |choice_step| {
        let mut observed = observe(chosen.clone(), None);
        observed.choice = choice_step;
        plan(&observed).steps
    };
    assert_eq!(steps(ChoiceStep::Nothing), [Step::CreateVmi]);
    assert_eq!(steps(ChoiceStep::Keep), [Step::KeepChoice, Step::CreateVmi]);
    assert_eq!(steps(ChoiceStep::Expand), [Step::ExpandChoice]);
}

#[test]
fn choice_step_depends_on_policy_status_and_guest() {
    let sized = |status: Value| {
        let vm = set(vm("Always"), "/spec/instancetype", json!({"name": "small"}));
        let vm = set(vm, "/status/instancetypeRef", status);
        serde_json::from_value::<Vm>(vm).unwrap()
    };
    let kind = "VirtualMachineClusterInstancetype";
    let kept = json!({"name": "small", "kind": kind, "controllerRevisionRef": {"name": "r"}});
    let other = json!({"name": "large", "kind": kind, "controllerRevisionRef": {"name": "r"}});
    for (status, instance, policy, wanted) in [
        (
            Value::Null,
            Instance::None,
            Policy::Reference,
            ChoiceStep::Keep,
        ),
        (
            Value::Null,
            Instance::Exists,
            Policy::Reference,
            ChoiceStep::Keep,
        ),
        (
            kept.clone(),
            Instance::None,
            Policy::Reference,
            ChoiceStep::Nothing,
        ),
        (other, Instance::None, Policy::Reference, ChoiceStep::Keep),
        (
            Value::Null,
            Instance::None,
            Policy::Expand,
            ChoiceStep::Expand,
        ),
        (
            kept.clone(),
            Instance::None,
            Policy::Expand,
            ChoiceStep::Nothing,
        ),
        (
            kept.clone(),
            Instance::None,
            Policy::ExpandAll,
            ChoiceStep::Expand,
        ),
        (
            kept,
            Instance::Exists,
            Policy::ExpandAll,
            ChoiceStep::Nothing,
        ),
    ] {
        let found = choice_step(&sized(status.clone()), instance, &policy);
        assert_eq!(found, wanted, "{status} {instance:?} {policy:?}");
    }
    let nameless = set(vm("Always"), "/spec/preference", json!({"kind": "Taste"}));
    let nameless: Vm = serde_json::from_value(nameless).unwrap();
    assert_eq!(
        choice_step(&nameless, Instance::None, &Policy::Expand),
        ChoiceStep::Keep
    );
    let plain: Vm = serde_json::from_value(vm("Always")).unwrap();
    assert_eq!(
        choice_step(&plain, Instance::None, &Policy::ExpandAll),
        ChoiceStep::Nothing
    );
}

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

fn with_volume(mut vm: Value, volume: &Value) -> Value {
    let volumes = &mut vm["spec"]["template"]["spec"]["volumes"];
    if volumes.is_null() {
        *volumes = json!([]);
    }
    volumes.as_array_mut().unwrap().push(volume.clone());
    vm
}

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

/// Observes a running guest of generation 2 while the VM is at 3.
fn observe_changed(before: Value) -> Observed {
    let mut observed = observe(vm("Always"), Some(vmi("Running")));
    observed.started_from = Some(before);
    observed
}

#[test]
fn restart_is_required_while_the_guest_differs_from_the_spec() {
    let same = vm("Always")["spec"].clone();
    assert_eq!(
        plan(&observe_changed(same.clone())).steps,
        [Step::NoteGeneration(3)]
    );

    let uuid = defaults::controller::firmware_uuid("a").to_string();
    let path = "/template/spec/domain/firmware";
    let identity = set(same.clone(), path, json!({"uuid": uuid}));
    assert_eq!(
        plan(&observe_changed(identity)).restart,
        Restart::NotRequired
    );
    let foreign = set(same.clone(), path, json!({"uuid": "another"}));
    let fields = |before| match plan(&observe_changed(before)).restart {
        Restart::Required(fields) => fields.join(" "),
        other => format!("{other:?}"),
    };
    assert_eq!(fields(foreign), "template.spec.domain.firmware.uuid");
    let cores = set(
        same.clone(),
        "/template/spec/domain/cpu",
        json!({"cores": 1}),
    );
    assert_eq!(fields(cores), "template.spec.domain.cpu");
    let strategy = set(same.clone(), "/runStrategy", json!("Halted"));
    assert_eq!(fields(strategy), "NotRequired");
    let labels = set(same.clone(), "/template/metadata/labels", json!({}));
    assert_eq!(fields(labels), "NotRequired");
    let sized = set(same.clone(), "/instancetype", json!({"name": "small"}));
    assert_eq!(fields(sized), "instancetype.name");
    let empty = set(same, "/template/spec/nodeSelector", Value::Null);
    assert_eq!(fields(empty), "NotRequired");

    let mut current = observe_changed(json!({}));
    current.started_from = None;
    assert_eq!(plan(&current).restart, Restart::Unknown);
}

#[test]
fn restart_condition_names_changed_fields() {
    let before = set(
        vm("Always")["spec"].clone(),
        "/template/spec/domain/cpu",
        json!({"cores": 1}),
    );
    let observed = observe_changed(before.clone());
    let status = status::render(&observed, &plan(&observed), &Done::default());
    let find = |status: &VirtualMachineStatus| {
        let mut all = status.conditions.iter();
        let found = all.find(|condition| condition.type_.as_str() == "RestartRequired");
        found.map(|condition| condition.message.clone().unwrap())
    };
    let message = "changed since the start, restart to apply: spec.template.spec.domain.cpu";
    assert_eq!(find(&status).as_deref(), Some(message));
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!(status.desired_generation, Some(3));

    let vm = set(vm("Always"), "/status", json!(status));
    let mut unclear = observe(vm.clone(), Some(vmi("Running")));
    let kept = status::render(&unclear, &plan(&unclear), &Done::default());
    assert!(find(&kept).is_some());
    unclear.vmi = None;
    let gone = status::render(&unclear, &plan(&unclear), &Done::default());
    assert_eq!(find(&gone), None);

    let mut taken_back = observe(vm, Some(vmi("Running")));
    taken_back.started_from = Some(written_spec(&taken_back));
    let status = status::render(&taken_back, &plan(&taken_back), &Done::default());
    assert_eq!((find(&status), status.observed_generation), (None, Some(3)));
}

fn written_spec(observed: &Observed) -> Value {
    json!({"template": observed.vm.spec.template})
}

#[test]
fn revision_contains_all_fields() {
    let mut vm = vm("Always");
    vm["spec"]["updateVolumesStrategy"] = "Migration".into();
    vm["spec"]["unheardOf"] = json!({"a": 1});
    let observed = observe(vm, None);
    insta::assert_json_snapshot!(revision::body(&observed.vm, 3));
}

#[test]
fn terminating_foreign_vmi_is_released() {
    let foreign = set(
        vmi("Running"),
        "/metadata/ownerReferences/0/uid",
        json!("former"),
    );
    let terminating = set(foreign, "/metadata/deletionTimestamp", json!(NOW));
    let observed = observe(vm("Always"), Some(terminating.clone()));
    assert_eq!(plan(&observed).steps, [Step::ReleaseVmi]);
    let unowned = set(terminating, "/metadata/ownerReferences", json!([]));
    let observed = observe(vm("Always"), Some(unowned));
    assert_eq!(plan(&observed).steps, [Step::ReleaseVmi]);
}

#[test]
fn snapshot_statuses_cover_every_volume() {
    let with_claim = with_volume(
        vm("Manual"),
        &json!({"name": "data", "persistentVolumeClaim": {"claimName": "x"}}),
    );
    let both = with_volume(
        with_claim,
        &json!({"name": "root", "containerDisk": {"image": "i"}}),
    );
    let observed = observe(both, None);
    let status = status::render(&observed, &plan(&observed), &Done::default());
    let reported: Vec<(&str, bool)> = status
        .volume_snapshot_statuses
        .iter()
        .map(|one| (one.name.as_str(), one.enabled))
        .collect();
    assert_eq!(reported, [("data", false), ("root", false)]);
}

#[test]
fn status_of_a_running_vm_mirrors_its_vmi() {
    let conditions = json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": NOW},
        {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"},
    ]);
    let old = json!([{"type": "Paused", "status": "True"}, {"type": "Failure", "status": "True"}]);
    let vmi = set(vmi("Running"), "/status/conditions", conditions);
    let observed = observe(set(vm("Always"), "/status/conditions", old), Some(vmi));
    let status = status::render(&observed, &plan(&observed), &Done::default());
    insta::assert_json_snapshot!(status);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let observed = observe(vm("Always"), Some(vmi("Running")));
    let rendered = status::render(&observed, &plan(&observed), &Done::default());
    let key = reconcile::Key::new("default", "a");
    assert!(status::fragment(&observed.vm, &key, &rendered).is_some());
    let vm = set(vm("Always"), "/status", json!(rendered));
    let again = observe(vm, Some(vmi("Running")));
    let rendered = status::render(&again, &plan(&again), &Done::default());
    assert_eq!(status::fragment(&again.vm, &key, &rendered), None);
}
