//! Changes that a running guest follows, and those that need a restart.

use reasons::Reason;
use serde_json::{Value, json};

use super::{Done, observe, set, status, vm, vmi};
use crate::vm::instancetype::ChoiceStep;
use crate::vm::live::{Follow, Live, follow};
use crate::vm::observe::Observed;
use crate::vm::plan::{Failure, Restart, Step, plan};
use crate::vm::revision::{Plugs, changes_beyond};
use crate::vm::volume_moves::Moves;

pub(super) const SOCKETS: &str = "/domain/cpu/sockets";
pub(super) const MEMORY: &str = "/domain/memory/guest";

/// The spec of a template, as the guest was started with it.
pub(super) fn spec() -> Value {
    json!({
        "domain": {
            "cpu": {"sockets": 1, "cores": 2}, "memory": {"guest": "1Gi"}, "devices": {},
        },
        "nodeSelector": {"zone": "a"},
    })
}

/// Its processors and memory are changed, and the guest has not got them.
pub(super) fn pending() -> Value {
    let vmi = set(running(), "/spec/domain/cpu/sockets", json!(3));
    set(vmi, "/spec/domain/memory/guest", json!("2Gi"))
}

/// A running guest of that template.
pub(super) fn running() -> Value {
    let mut running = set(vmi("Running"), "/spec", spec());
    running["metadata"]["resourceVersion"] = "9".into();
    running["spec"]["architecture"] = "amd64".into();
    running["spec"]["domain"]["cpu"]["maxSockets"] = 4.into();
    running["spec"]["domain"]["memory"]["maxGuest"] = "4Gi".into();
    running["status"] = json!({
        "phase": "Running",
        "conditions": [{"type": "LiveMigratable", "status": "True"}],
        "currentCPUTopology": {"sockets": 1, "cores": 2, "threads": 1},
        "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
    });
    running
}

pub(super) fn live(before: Value, now: Value, vmi: Value) -> Live {
    Live {
        before,
        now,
        vmi: Box::new(serde_json::from_value(vmi).unwrap()),
        cpu_allocation_ratio: 10,
        missing: std::collections::BTreeMap::new(),
    }
}

pub(super) fn followed(now: Value, vmi: Value) -> Follow {
    follow(&live(spec(), now, vmi))
}

/// The patch of the spec, and of what is refused.
pub(super) fn outcome(now: Value, vmi: Value) -> (Value, Vec<String>) {
    let found = followed(now, vmi);
    let patch = found.patch.unwrap_or_default();
    assert!(patch.is_null() || patch["metadata"]["resourceVersion"] == "9");
    // Its guest cannot be suspended any more.
    let is_marked = patch["metadata"]["annotations"]["ferrovirt.io/memory-changed"] == "true";
    assert_eq!(is_marked, !patch["spec"]["domain"]["memory"].is_null());
    (patch["spec"].clone(), found.refused)
}

/// A VMI that has followed these fields.
pub(super) fn marked(mut vmi: Value, fields: &str) -> Value {
    vmi["metadata"]["annotations"]["ferrovirt.io/followed-fields"] = fields.into();
    vmi
}

pub(super) fn with_condition(vmi: Value, kind: &str, status: &str) -> Value {
    let condition = json!({"type": kind, "status": status, "message": "why"});
    let mut vmi = vmi;
    let all = vmi["status"]["conditions"].as_array_mut().unwrap();
    all.retain(|one| one["type"] != kind);
    all.push(condition);
    vmi
}

#[test]
fn running_guest_follows_processors_memory_and_nodes() {
    let check = |path: &str, value: Value, expected: Value| {
        let found = outcome(set(spec(), path, value.clone()), running());
        assert_eq!(found, (expected, vec![]), "{path} {value}");
    };
    check(SOCKETS, json!(1), Value::Null);
    check(
        SOCKETS,
        json!(3),
        json!({"domain": {"cpu": {"sockets": 3}}}),
    );
    check(MEMORY, json!("1024Mi"), Value::Null);
    check(
        MEMORY,
        json!("2Gi"),
        json!({"domain": {"memory": {"guest": "2Gi"}}}),
    );
    check(
        "/nodeSelector",
        json!({"disk": "fast"}),
        json!({"nodeSelector": {"zone": null, "disk": "fast"}}),
    );
    check("/nodeSelector", Value::Null, json!({"nodeSelector": null}));
    let toleration = json!([{"key": "k", "operator": "Exists"}]);
    check(
        "/tolerations",
        toleration.clone(),
        json!({"tolerations": toleration}),
    );
    check("/tolerations", json!([]), Value::Null);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In",
                                                "values": ["n1"]}]}]}}});
    check("/affinity", affinity.clone(), json!({"affinity": affinity}));
    // What the template does not say stays.
    check("/domain/cpu", json!({"cores": 2}), Value::Null);
    check("/domain/memory", Value::Null, Value::Null);
}

#[test]
fn requests_and_limits_of_the_template_grow_along() {
    let lists = json!({
        "requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"},
    });
    let now = set(spec(), "/domain/resources", lists.clone());
    let now = set(set(now, SOCKETS, json!(3)), MEMORY, json!("3Gi"));
    let own = set(running(), "/spec/domain/resources", lists);
    let (patch, refused) = outcome(now.clone(), own);
    assert_eq!(refused, Vec::<String>::new());
    assert_eq!(
        patch["domain"]["resources"],
        json!({
            "requests": {"cpu": "900m", "memory": "3Gi"},
            "limits": {"cpu": "2400m", "memory": "4Gi"},
        })
    );
    // The administrator's default is not the template's.
    let defaulted = json!({"requests": {"cpu": "100m"}});
    let own = set(running(), "/spec/domain/resources", defaulted);
    let (patch, _) = outcome(set(spec(), SOCKETS, json!(3)), own);
    assert_eq!(patch, json!({"domain": {"cpu": {"sockets": 3}}}));
}

#[test]
fn change_beyond_the_room_of_the_guest_needs_a_restart() {
    let check = |path: &str, value: Value, vmi: Value, expected: &str| {
        let (patch, refused) = outcome(set(spec(), path, value.clone()), vmi);
        assert_eq!(patch, Value::Null, "{path} {value}");
        let [refused] = &refused[..] else {
            panic!("{path} {value}: {refused:?}");
        };
        assert!(refused.contains(expected), "{path} {value}: {refused}");
    };
    let grown = || {
        let vmi = set(running(), "/spec/domain/cpu/sockets", json!(3));
        set(vmi, "/status/currentCPUTopology/sockets", json!(3))
    };
    check(SOCKETS, json!(5), running(), "room for 4 sockets");
    check(SOCKETS, json!(2), grown(), "cannot lose processors");
    let arm = set(running(), "/spec/architecture", json!("arm64"));
    check(SOCKETS, json!(2), arm.clone(), "arm64");
    check(MEMORY, json!("2Gi"), arm, "amd64");
    check(MEMORY, json!("5Gi"), running(), "room for 4Gi");
    check(MEMORY, json!("512Mi"), running(), "at its start");
    check(MEMORY, json!("1073741825"), running(), "multiples of 2Mi");
    let fixed = set(running(), "/spec/domain/memory/maxGuest", Value::Null);
    check(MEMORY, json!("2Gi"), fixed, "cannot change while it runs");
    let stuck = with_condition(running(), "LiveMigratable", "False");
    check(SOCKETS, json!(2), stuck.clone(), "cannot migrate: why");
    check(MEMORY, json!("2Gi"), stuck, "cannot migrate: why");
    let failed = with_condition(running(), "HotVCPUChange", "False");
    check(
        SOCKETS,
        json!(2),
        failed,
        "earlier change of the processors",
    );
    let failed = with_condition(running(), "HotMemoryChange", "False");
    check(MEMORY, json!("2Gi"), failed, "earlier change of the memory");
}

#[test]
fn change_that_has_not_taken_effect_can_be_taken_back() {
    let pending = marked(pending(), "sockets,memory");
    let back = json!({"domain": {"cpu": {"sockets": 1}, "memory": {"guest": "1Gi"}}});
    assert_eq!(outcome(spec(), pending.clone()), (back.clone(), vec![]));
    for kind in ["HotVCPUChange", "HotMemoryChange", "LiveMigratable"] {
        let failed = with_condition(pending.clone(), kind, "False");
        assert_eq!(outcome(spec(), failed), (back.clone(), vec![]), "{kind}");
    }
}

#[test]
fn guest_that_does_not_run_or_moves_takes_changes_later() {
    let now = set(spec(), SOCKETS, json!(2));
    let check = |vmi: Value, expected: &str| {
        let found = followed(now.clone(), vmi.clone());
        let waits = found.waits.unwrap_or_default();
        assert!(waits.contains(expected), "{vmi}: {waits}");
        assert_eq!(waits.is_empty(), expected.is_empty(), "{vmi}: {waits}");
        assert_eq!(found.patch.is_none(), !expected.is_empty(), "{vmi}");
        assert_eq!(found.refused, Vec::<String>::new());
    };
    check(running(), "");
    let scheduled = set(running(), "/status/phase", json!("Scheduled"));
    check(scheduled, "does not run yet");
    let unknown = set(running(), "/status/conditions", json!([]));
    check(unknown, "whether the guest can migrate");
    let start = "2026-11-21T12:00:00Z";
    let state = |state: Value| set(running(), "/status/migrationState", state);
    check(state(json!({"migrationUid": "m"})), "");
    check(state(json!({"startTimestamp": start})), "is migrating");
    check(
        state(json!({"startTimestamp": start, "completed": true})),
        "",
    );
    check(state(json!({"startTimestamp": start, "failed": true})), "");
}

fn observe_changed(now: Value, vmi: Value) -> Observed {
    let mut changed = vm("Always");
    changed["spec"]["template"]["spec"] = now.clone();
    let mut started_from = vm("Always")["spec"].clone();
    started_from["template"]["spec"] = spec();
    let mut observed = observe(changed, Some(vmi.clone()));
    observed.started_from = Some(started_from);
    observed.live = Some(live(spec(), now, vmi));
    observed
}

#[test]
fn vmi_follows_before_its_generation_is_noted() {
    let now = || set(spec(), SOCKETS, json!(2));
    let first = plan(&observe_changed(now(), running()));
    assert_eq!(first.steps, [Step::FollowTemplate]);
    assert_eq!(first.restart, Restart::NotRequired);
    let follows = set(running(), "/spec/domain/cpu/sockets", json!(2));
    let next = plan(&observe_changed(now(), follows));
    assert_eq!(next.steps, [Step::NoteGeneration(3)]);
}

/// The message of a condition of the VM, if it holds.
fn shown(observed: &Observed, done: &Done, kind: &str) -> Option<String> {
    let status = status::render(observed, &plan(observed), done);
    let mut all = status.conditions.into_iter();
    let found = all.find(|one| one.type_.as_str() == kind && one.status == "True")?;
    found.message
}

#[test]
fn change_that_waits_is_shown_until_it_is_followed() {
    let now = || set(spec(), SOCKETS, json!(2));
    let moving = json!({"startTimestamp": "2026-11-21T12:00:00Z"});
    let moving = set(running(), "/status/migrationState", moving);
    let waiting = observe_changed(now(), moving);
    let planned = plan(&waiting);
    assert_eq!(
        (planned.steps, planned.restart),
        (vec![], Restart::NotRequired)
    );
    let pending = shown(&waiting, &Done::default(), "ChangePending").unwrap();
    assert!(pending.ends_with("the guest is migrating"), "{pending}");
    let old = json!([{"type": "ChangePending", "status": "True"}]);
    let with_old = |mut observed: Observed, run_strategy: &str| {
        let changed = set(vm(run_strategy), "/spec/template/spec", now());
        let changed = set(changed, "/status/conditions", old.clone());
        observed.vm = observe(changed, None).vm;
        shown(&observed, &Done::default(), "ChangePending")
    };
    let follows = observe_changed(now(), running());
    assert_eq!(with_old(follows, "Always"), None);
    // It stops.
    assert_eq!(with_old(waiting, "Halted"), None);
}

#[test]
fn failed_change_is_named_though_the_generation_is_not_noted() {
    let now = set(spec(), MEMORY, json!("2Gi"));
    let follows = set(running(), "/spec/domain/memory/guest", json!("2Gi"));
    let failed = with_condition(follows, "HotMemoryChange", "False");
    let mut observed = observe_changed(now.clone(), failed);
    let mut changed = set(vm("Always"), "/spec/template/spec", now);
    changed["spec"]["template"]["metadata"]["labels"]["app"] = "db".into();
    observed.vm = observe(changed, None).vm;
    let found = plan(&observed);
    let memory = "template.spec.domain.memory.guest (why)".to_owned();
    assert_eq!(found.restart, Restart::Required(vec![memory]));
    assert_eq!((found.steps, found.follow), (vec![], Follow::default()));
}

#[test]
fn restart_is_required_if_the_choice_cannot_be_stored() {
    let cores = || set(spec(), "/domain/cpu/cores", json!(4));
    let failed = || Done {
        failure: Some(Failure {
            reason: Reason::FailedFindInstancetype,
            message: "there is none".to_owned(),
        }),
        ..Done::default()
    };
    let restart = |now: Value, choice: ChoiceStep, done: &Done| {
        let mut observed = observe_changed(now, running());
        observed.choice = choice;
        observed.live = None;
        shown(&observed, done, "RestartRequired")
    };
    for choice in [ChoiceStep::Keep, ChoiceStep::Upgrade] {
        let message = restart(cores(), choice, &failed()).unwrap();
        assert!(message.contains("domain.cpu.cores"), "{message}");
        assert_eq!(restart(spec(), choice, &failed()), None);
        // The guest may follow what is compared next.
        assert_eq!(restart(cores(), choice, &Done::default()), None);
    }
}

#[test]
fn guest_that_has_to_restart_follows_nothing() {
    let now = set(spec(), SOCKETS, json!(2));
    let now = set(now, "/domain/cpu/cores", json!(4));
    let found = plan(&observe_changed(now, running()));
    assert_eq!(found.steps, []);
    let cores = "template.spec.domain.cpu.cores".to_owned();
    assert_eq!(found.restart, Restart::Required(vec![cores]));
    let found = plan(&observe_changed(set(spec(), SOCKETS, json!(9)), running()));
    assert!(matches!(found.restart, Restart::Required(fields) if fields.len() == 1));
}

#[test]
fn guest_that_does_not_run_yet_needs_a_restart_for_each_change() {
    let now = || set(spec(), "/nodeSelector", json!({"zone": "b"}));
    for (phase, expected) in [
        ("Scheduling", Some("template.spec.nodeSelector.zone")),
        ("Scheduled", Some("template.spec.nodeSelector.zone")),
        ("Running", None),
    ] {
        let found = plan(&observe_changed(
            now(),
            set(running(), "/status/phase", phase.into()),
        ));
        let named = match &found.restart {
            Restart::Required(fields) => fields.first().map(String::as_str),
            _ => None,
        };
        let is_named = expected.is_some_and(|path| named.is_some_and(|one| path.starts_with(one)));
        assert_eq!(is_named, expected.is_some(), "{phase}: {:?}", found.restart);
        let follows = found.steps.contains(&Step::FollowTemplate);
        assert_eq!(follows, expected.is_none(), "{phase}");
    }
}

#[test]
fn change_is_taken_back_though_another_needs_a_restart() {
    let pending = marked(pending(), "sockets,memory");
    let check = |sockets: u32, memory: &str, expected: Value| {
        let now = set(spec(), "/domain/cpu/cores", json!(4));
        let now = set(set(now, SOCKETS, json!(sockets)), MEMORY, json!(memory));
        let found = plan(&observe_changed(now, pending.clone()));
        assert!(matches!(found.restart, Restart::Required(_)));
        let patch = found.follow.patch.unwrap_or_default();
        assert_eq!(patch["spec"], expected, "{sockets} {memory}");
        let follows = found.steps.contains(&Step::FollowTemplate);
        assert_eq!(follows, !expected.is_null(), "{sockets} {memory}");
    };
    let sockets = json!({"sockets": 1});
    let memory = json!({"guest": "1Gi"});
    check(
        1,
        "1Gi",
        json!({"domain": {"cpu": sockets, "memory": memory}}),
    );
    check(1, "2Gi", json!({"domain": {"cpu": sockets}}));
    check(3, "1Gi", json!({"domain": {"memory": memory}}));
    // Nothing is added before the restart.
    check(3, "2Gi", Value::Null);
    check(2, "3Gi", Value::Null);
}

#[test]
fn change_that_is_refused_or_unknown_holds_up_no_stop() {
    let now = set(spec(), SOCKETS, json!(2));
    let observed = observe_changed(now.clone(), running());
    let done = Done {
        not_followed: Some("quota".to_owned()),
        ..Done::default()
    };
    let message = shown(&observed, &done, "RestartRequired").unwrap();
    assert!(message.contains("quota"), "{message}");

    let mut stopped = observe_changed(now.clone(), running());
    let halted = vm("Halted");
    let halted = set(halted, "/spec/template/spec", now.clone());
    stopped.vm = observe(halted, None).vm;
    assert_eq!(plan(&stopped).steps, [Step::DeleteVmi]);

    let mut unread = observe_changed(now, running());
    unread.live = None;
    unread.unread = Some("the server does not answer".to_owned());
    let found = plan(&unread);
    assert_eq!((found.steps, found.restart), (vec![], Restart::Unknown));
    assert!(found.requeue_in.is_some());
}

#[test]
fn template_is_followed_after_everything_else() {
    let mut changed = observe_changed(set(spec(), SOCKETS, json!(2)), running());
    let with_request = set(
        vm("Always"),
        "/spec/template/spec",
        set(spec(), SOCKETS, json!(2)),
    );
    let request = json!([{"addVolumeOptions": {"name": "d", "disk": {},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "c"}}}}]);
    let with_request = set(with_request, "/status/volumeRequests", request);
    changed.vm = observe(with_request, None).vm;
    let steps = plan(&changed).steps;
    assert_eq!(steps, [Step::ApplyVolumeRequests, Step::FollowTemplate]);
}

#[test]
fn restart_is_required_after_a_failed_change() {
    let mobile =
        |status: &str| json!({"type": "LiveMigratable", "status": status, "message": "why"});
    let change =
        |status: &str| json!({"type": "HotMemoryChange", "status": status, "message": "refused"});
    for (conditions, expected) in [
        (json!([change("False")]), Some("refused")),
        (json!([change("False"), mobile("True")]), Some("refused")),
        (json!([change("True"), mobile("True")]), None),
        // It cannot move any more.
        (
            json!([change("True"), mobile("False")]),
            Some("the guest cannot migrate: why"),
        ),
        (json!([mobile("False")]), None),
    ] {
        let mut current = vmi("Running");
        current["metadata"]["annotations"]["kubevirt.io/vm-generation"] = "3".into();
        current["status"]["conditions"] = conditions.clone();
        let found = plan(&observe(vm("Always"), Some(current))).restart;
        let expected = expected.map_or(Restart::NotRequired, |why| {
            Restart::Required(vec![format!("template.spec.domain.memory.guest ({why})")])
        });
        assert_eq!(found, expected, "{conditions}");
    }
}

#[test]
fn field_that_is_removed_from_the_template_needs_a_restart() {
    let vm = observe(vm("Always"), None).vm;
    let fields = |now: Value| {
        let guest = live(spec(), now, running());
        changes_beyond(&vm, &guest, Plugs::Volumes, &Moves::default()).join(" ")
    };
    assert_eq!(fields(spec()), "");
    for (path, value) in [
        (SOCKETS, json!(3)),
        (MEMORY, json!("3Gi")),
        ("/nodeSelector", Value::Null),
        ("/affinity", json!({})),
        ("/tolerations", json!([{"key": "k"}])),
    ] {
        assert_eq!(fields(set(spec(), path, value)), "", "{path}");
    }
    let removed = set(spec(), "/domain/cpu", json!({"cores": 2}));
    assert_eq!(fields(removed), "template.spec.domain.cpu.sockets");
    let removed = set(spec(), "/domain/memory", Value::Null);
    assert_eq!(fields(removed), "template.spec.domain.memory");
}

#[test]
fn volumes_that_do_not_move_need_a_restart() {
    let fields = |moves: &Moves| {
        let vm = observe(vm("Always"), None).vm;
        let volume = |claim: &str| {
            let volume = json!([{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]);
            set(spec(), "/volumes", volume)
        };
        let guest = live(volume("a"), volume("b"), running());
        changes_beyond(&vm, &guest, Plugs::Volumes, moves).join(" ")
    };
    assert_eq!(fields(&Moves::default()), "template.spec.volumes");
    let refused = Moves {
        refused: Some("luns: [d]".to_owned()),
        ..Moves::default()
    };
    let found = fields(&refused);
    assert!(
        found.contains("luns: [d]; a restart does not copy"),
        "{found}"
    );
    let followed = Moves {
        followed: ["d".to_owned()].into(),
        ..Moves::default()
    };
    assert_eq!(fields(&followed), "");
}
