//! Plans for states of a migration, its VMI and its pod; limits; the choice of a policy.

mod resize;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::annotations;
use kubevirt_api::migration_policy::MigrationPolicy;
use kubevirt_api::migration_request::{
    MigrationPriority, VirtualMachineInstanceMigrationPhase as Phase,
};
use reconcile::Key;
use serde_json::{Value, json};

use super::attachment::Attachment;
use super::limits::Turn;
use super::limits::{Limits, Waiting, back_off, may_begin, priority};
use super::observe::{Observed, back_off_of, by_guest};
use super::plan::plan;
use super::policy;
use super::steps::{Plan, Step};
use super::view::Migration;
use crate::merge_patch::in_place_of;

const CREATED: &str = "2026-11-21T12:00:00Z";

fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = CREATED.parse().unwrap();
    Timestamp::from_second(start.as_second() + seconds).unwrap()
}

fn migration(phase: &str) -> Value {
    json!({
        "metadata": {"name": "m", "namespace": "n", "uid": "m-uid", "creationTimestamp": CREATED,
                     "finalizers": ["kubevirt.io/migrationJobFinalize"]},
        "spec": {"vmiName": "a"},
        "status": {"phase": phase, "phaseTransitionTimestamps": [
            {"phase": phase, "phaseTransitionTimestamp": CREATED}]},
    })
}

fn deleted(mut migration: Value) -> Value {
    migration["metadata"]["deletionTimestamp"] = CREATED.into();
    migration
}

/// A guest that runs on `n1`; `state` is that of this migration to `n2`.
fn guest(state: Option<Value>) -> Value {
    let mut vmi = json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "a-uid"},
        "status": {"phase": "Running", "nodeName": "n1"},
    });
    if let Some(mut state) = state {
        for (name, value) in [
            ("migrationUid", "m-uid"),
            ("sourceNode", "n1"),
            ("sourcePod", "source"),
            ("targetNode", "n2"),
            ("targetPod", "target"),
        ] {
            state[name] = value.into();
        }
        vmi["status"]["migrationState"] = state;
    }
    vmi
}

fn pod(phase: &str) -> Value {
    let state = match phase {
        "Running" => json!({"running": {"startedAt": CREATED}}),
        "Failed" => json!({"terminated": {"exitCode": 1, "finishedAt": CREATED}}),
        _ => json!({"waiting": {"reason": "ContainerCreating"}}),
    };
    json!({
        "metadata": {"name": "target", "namespace": "n", "uid": "pod-uid",
                     "creationTimestamp": CREATED,
                     "labels": {"kubevirt.io/migrationJobUID": "m-uid"}},
        "spec": {"nodeName": "n2"},
        "status": {"phase": phase, "containerStatuses": [{"name": "compute", "ready": true,
            "image": "i", "imageID": "", "restartCount": 0, "state": state}]},
    })
}

fn observed(migration: Value, vmi: Option<Value>, pod: Option<Value>) -> Observed {
    let parse = |value| serde_json::from_value(value).unwrap();
    Observed {
        migration: Arc::new(serde_json::from_value(migration).unwrap()),
        vmi: vmi.map(|vmi| Arc::new(serde_json::from_value(vmi).unwrap())),
        target: pod.map(parse).map(Arc::new),
        is_target_current: false,
        attachment: Attachment::NotNeeded,
        current_pod: None,
        rival: None,
        turn: Turn::Now,
        other: None,
        newer: 0,
        now: at(1),
    }
}

fn check(observed: &Observed, phase: &Phase, step: Option<Step>) -> Plan {
    let found = plan(observed);
    assert_eq!((&found.phase, found.step), (phase, step), "{observed:#?}");
    assert_eq!(
        found.failure.is_some(),
        *phase == Phase::Failed && !observed.migration.is_final()
    );
    found
}

#[test]
fn migration_goes_through_its_phases() {
    let running = || Some(pod("Running"));
    let begun = || json!({"startTimestamp": CREATED, "targetNodeAddress": "10.0.0.2"});
    let mut unfinalized = migration("");
    unfinalized["metadata"]["finalizers"] = json!([]);
    let cases = [
        (
            unfinalized,
            None,
            None,
            Phase::Unset,
            Some(Step::AddFinalizer),
        ),
        (
            migration(""),
            None,
            None,
            Phase::Pending,
            Some(Step::CreateTarget),
        ),
        (
            migration("Pending"),
            None,
            Some(pod("Pending")),
            Phase::Scheduling,
            None,
        ),
        (
            migration("Scheduling"),
            None,
            running(),
            Phase::Scheduled,
            Some(Step::HandOver),
        ),
        (
            migration("Scheduled"),
            Some(json!({})),
            running(),
            Phase::PreparingTarget,
            None,
        ),
        (
            migration("PreparingTarget"),
            Some(json!({"targetNodeAddress": "10.0.0.2"})),
            running(),
            Phase::TargetReady,
            None,
        ),
        (
            migration("TargetReady"),
            Some(begun()),
            running(),
            Phase::Running,
            None,
        ),
    ];
    for (migration, state, pod, phase, step) in cases {
        check(&observed(migration, Some(guest(state)), pod), &phase, step);
    }
    let mut moved = guest(Some(json!({"startTimestamp": CREATED, "completed": true})));
    // The VMI follows the guest to its node.
    let before = observed(migration("Running"), Some(moved.clone()), running());
    check(&before, &Phase::Running, None);
    moved["status"]["nodeName"] = "n2".into();
    let after = observed(migration("Running"), Some(moved.clone()), running());
    check(&after, &Phase::Succeeded, None);
    let mut done = observed(migration("Succeeded"), Some(moved), running());
    done.is_target_current = true;
    check(&done, &Phase::Succeeded, Some(Step::RemoveFinalizer));
}

#[test]
fn migration_within_a_node_is_over_once_the_vmi_shows_the_new_launcher() {
    let pod = || {
        let mut pod = pod("Running");
        pod["spec"] =
            json!({"nodeName": "n1", "containers": [{"name": "compute", "image": "l:2"}]});
        Some(pod)
    };
    let guest = |mut state: Option<Value>, image: &str| {
        let is_begun = state.is_some();
        let mut vmi = guest(state.take());
        vmi["status"]["conditions"] = json!([
            {"type": "LiveMigratable", "status": "True", "reason": "OnlyWithinNode"}]);
        vmi["status"]["launcherContainerImageVersion"] = image.into();
        if is_begun {
            vmi["status"]["migrationState"]["targetNode"] = "n1".into();
        }
        Some(vmi)
    };
    let ready = observed(migration("Scheduling"), guest(None, "l:1"), pod());
    check(&ready, &Phase::Scheduled, Some(Step::HandOver));
    let state = |change: Value| Some(change);
    let begun = state(json!({"startTimestamp": CREATED}));
    let begun = observed(migration("Running"), guest(begun, "l:1"), pod());
    check(&begun, &Phase::Running, None);
    let moved = || state(json!({"startTimestamp": CREATED, "completed": true}));
    let unseen = observed(migration("Running"), guest(moved(), "l:1"), pod());
    check(&unseen, &Phase::Running, None);
    let followed = observed(migration("Running"), guest(moved(), "l:2"), pod());
    check(&followed, &Phase::Succeeded, None);
    let failed = state(json!({"completed": true, "failed": true}));
    let failed = observed(migration("Running"), guest(failed, "l:1"), pod());
    check(&failed, &Phase::Failed, None);
    // Where there are other nodes, the pod of a migration is on one of them.
    let mut elsewhere = guest(None, "l:1").unwrap();
    elsewhere["status"]["conditions"][0]["reason"] = "".into();
    let elsewhere = observed(migration("Scheduling"), Some(elsewhere), pod());
    check(&elsewhere, &Phase::Failed, None);
}

#[test]
fn guest_with_dedicated_cpus_moves_to_a_pod_that_has_some_for_itself() {
    for (class, phase, step) in [
        ("Guaranteed", Phase::Scheduled, Some(Step::HandOver)),
        ("Burstable", Phase::Failed, None),
    ] {
        let mut vmi = guest(None);
        vmi["spec"] = json!({"domain": {"cpu": {"dedicatedCpuPlacement": true}}});
        let mut pod = pod("Running");
        pod["status"]["qosClass"] = class.into();
        check(
            &observed(migration("Scheduling"), Some(vmi), Some(pod)),
            &phase,
            step,
        );
    }
}

#[test]
fn guest_is_handed_over_once_its_volumes_can_come_along() {
    use Attachment::{Failed, Missing, NotNeeded, Ready, Waits};
    let text = str::to_owned;
    let scheduling = || Phase::Scheduling;
    for (attachment, takes_volumes, seconds, phase, step) in [
        (NotNeeded, false, 1, Phase::Scheduled, Some(Step::HandOver)),
        (Missing, true, 1, scheduling(), Some(Step::CreateAttachment)),
        (Missing, false, 1, Phase::Failed, None),
        (Waits(String::new()), true, 1, scheduling(), None),
        (Waits(text("no node")), true, 900, Phase::Failed, None),
        (
            Ready { uid: text("u") },
            true,
            900,
            Phase::Scheduled,
            Some(Step::HandOver),
        ),
        (Failed(text("gone")), true, 1, Phase::Failed, None),
    ] {
        let mut pod = pod("Running");
        if takes_volumes {
            pod["spec"]["volumes"] = json!([{"name": "hotplug-disks", "emptyDir": {}}]);
        }
        let mut seen = observed(migration("Scheduling"), Some(guest(None)), Some(pod));
        seen.attachment = attachment;
        seen.now = at(seconds);
        let plan = check(&seen, &phase, step);
        let waits = phase == Phase::Scheduling;
        assert_eq!(plan.requeue_in.is_some(), waits, "{seen:?}");
        // Its status says so.
        let is_shown = matches!(seen.attachment, Waits(_)) && waits;
        assert_eq!(plan.waits.is_some(), is_shown, "{seen:?}");
        let status = super::status::render(&seen, &plan, &super::status::Done::default());
        let shown = status.conditions.iter();
        let mut shown = shown.filter(|one| one.type_.as_str() == "waitsForVolumes");
        assert_eq!(shown.next().is_some(), is_shown, "{seen:?}");
    }
}

#[test]
fn failed_migration_deletes_its_pod_before_it_lets_go() {
    let message = "the other pod cannot be reached";
    let state = json!({"completed": true, "failed": true, "failureReason": message});
    let vmi = || Some(guest(Some(state.clone())));
    let failed = observed(migration("Running"), vmi(), Some(pod("Running")));
    let plan = check(&failed, &Phase::Failed, None);
    assert_eq!(plan.failure.as_deref(), Some(message));
    let with_pod = observed(migration("Failed"), vmi(), Some(pod("Running")));
    check(&with_pod, &Phase::Failed, Some(Step::DeleteTarget));
    let without = observed(migration("Failed"), vmi(), None);
    check(&without, &Phase::Failed, Some(Step::RemoveFinalizer));
    // The node of the pod may be lost.
    let mut terminating = pod("Running");
    terminating["metadata"]["deletionTimestamp"] = CREATED.into();
    let deleting = observed(migration("Failed"), vmi(), Some(terminating));
    check(&deleting, &Phase::Failed, Some(Step::RemoveFinalizer));
    // Never a pod that may have the guest.
    let mut current = observed(migration("Failed"), vmi(), Some(pod("Running")));
    current.is_target_current = true;
    check(&current, &Phase::Failed, Some(Step::RemoveFinalizer));
}

#[test]
fn causes_that_end_a_migration_before_virt_handler_knows_it() {
    let cases = [
        (migration("Pending"), None, None, "does not exist"),
        (
            migration("Scheduling"),
            Some(guest(None)),
            None,
            "was deleted",
        ),
        (
            migration("Scheduling"),
            Some(guest(None)),
            Some(pod("Failed")),
            "ended",
        ),
        (
            deleted(migration("Scheduling")),
            Some(guest(None)),
            Some(pod("Running")),
            "cancelled",
        ),
    ];
    for (migration, vmi, pod, part) in cases {
        let plan = check(&observed(migration, vmi, pod), &Phase::Failed, None);
        assert!(plan.failure.as_deref().unwrap().contains(part), "{plan:?}");
    }
    let mut same_node = guest(None);
    same_node["status"]["nodeName"] = "n2".into();
    check(
        &observed(
            migration("Scheduled"),
            Some(same_node),
            Some(pod("Running")),
        ),
        &Phase::Failed,
        None,
    );
    let mut unfinished = guest(Some(json!({"startTimestamp": CREATED})));
    unfinished["status"]["migrationState"]["migrationUid"] = "removed".into();
    let unfinished = observed(
        migration("Scheduled"),
        Some(unfinished),
        Some(pod("Running")),
    );
    check(&unfinished, &Phase::Failed, None);
    let mut rival = observed(migration(""), Some(guest(None)), None);
    rival.rival = Some("other".to_owned());
    check(&rival, &Phase::Failed, None);
    let mut local = guest(None);
    local["status"]["conditions"] = json!([{"type": "LiveMigratable", "status": "False",
        "reason": "DisksNotLiveMigratable", "message": "volume v is stored on the node"}]);
    let plan = check(
        &observed(migration(""), Some(local), None),
        &Phase::Failed,
        None,
    );
    assert!(plan.failure.unwrap().contains("volume v"));
    let mut ended = guest(None);
    ended["status"]["phase"] = "Succeeded".into();
    check(
        &observed(migration("Pending"), Some(ended), None),
        &Phase::Failed,
        None,
    );
}

#[test]
fn pod_that_is_not_in_the_cache_is_looked_for_until_the_migration_lets_go() {
    let looks = |phase: &str, has_finalizer: bool| {
        let mut migration = migration(phase);
        if !has_finalizer {
            migration["metadata"]["finalizers"] = json!([]);
        }
        let migration: Migration = serde_json::from_value(migration).unwrap();
        migration.may_have_unseen_pod()
    };
    assert!(!looks("Pending", true));
    assert!(looks("Scheduling", true));
    assert!(looks("Failed", true));
    assert!(!looks("Failed", false));
}

#[test]
fn refused_migration_does_not_keep_its_place() {
    let rejected = |status: &str| {
        let mut migration = migration("Pending");
        migration["status"]["conditions"] =
            json!([{"type": "migrationRejectedByResourceQuota", "status": status}]);
        let migration: Migration = serde_json::from_value(migration).unwrap();
        migration.is_rejected()
    };
    assert!(rejected("True"));
    assert!(!rejected("False"));
}

#[test]
fn deleted_migration_is_cancelled_and_goes() {
    let begun = json!({"startTimestamp": CREATED, "targetNodeAddress": "10.0.0.2"});
    let vmi = |state: &Value| Some(guest(Some(state.clone())));
    let running = || Some(pod("Running"));
    let first = observed(deleted(migration("Running")), vmi(&begun), running());
    check(&first, &Phase::Running, Some(Step::RequestAbort));
    let mut aborting = begun.clone();
    aborting["abortRequested"] = json!(true);
    let waiting = observed(deleted(migration("Running")), vmi(&aborting), running());
    check(&waiting, &Phase::Running, None);
    aborting["completed"] = json!(true);
    aborting["failed"] = json!(true);
    let over = observed(deleted(migration("Running")), vmi(&aborting), running());
    check(&over, &Phase::Failed, None);
    // Its VMI is gone, or has ended.
    check(
        &observed(deleted(migration("Running")), None, None),
        &Phase::Failed,
        None,
    );
    let gone = observed(deleted(migration("Failed")), None, None);
    check(&gone, &Phase::Failed, Some(Step::RemoveFinalizer));
}

#[test]
fn pod_that_does_not_become_ready_is_given_up() {
    let waits = |pod: Value, seconds: i64, annotation: Option<&str>| {
        let mut migration = migration("Scheduling");
        if let Some(limit) = annotation {
            migration["metadata"]["annotations"] = json!({
                "kubevirt.io/migrationPendingPodTimeoutSeconds": limit});
        }
        let mut observed = observed(migration, Some(guest(None)), Some(pod));
        observed.now = at(seconds);
        plan(&observed)
    };
    let mut unschedulable = pod("Pending");
    unschedulable["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "no node has room"}]);
    let early = waits(unschedulable.clone(), 299, None);
    assert_eq!(
        (early.phase, early.requeue_in),
        (Phase::Scheduling, Some(Duration::from_secs(1)))
    );
    let late = waits(unschedulable, 300, None);
    assert!(late.failure.unwrap().contains("no node has room"));
    assert_eq!(waits(pod("Pending"), 899, None).phase, Phase::Scheduling);
    assert_eq!(waits(pod("Pending"), 900, None).phase, Phase::Failed);
    assert_eq!(waits(pod("Pending"), 20, Some("20")).phase, Phase::Failed);
}

#[test]
fn migration_that_the_new_node_does_not_prepare_is_aborted() {
    let state = || Some(guest(Some(json!({}))));
    let mut late = observed(migration("PreparingTarget"), state(), Some(pod("Running")));
    let plan = check(&late, &Phase::PreparingTarget, None);
    assert_eq!(plan.requeue_in, Some(Duration::from_secs(899)));
    late.now = at(900);
    check(&late, &Phase::PreparingTarget, Some(Step::RequestAbort));
    let lost = observed(migration("PreparingTarget"), state(), None);
    check(&lost, &Phase::PreparingTarget, Some(Step::RequestAbort));
}

#[test]
fn only_the_last_finished_migrations_are_kept() {
    let mut done = migration("Succeeded");
    done["metadata"]["finalizers"] = json!([]);
    let mut one = observed(done.clone(), None, None);
    one.newer = 4;
    check(&one, &Phase::Succeeded, None);
    one.newer = 5;
    check(&one, &Phase::Succeeded, Some(Step::CleanUp));
}

#[test]
fn turn_follows_priority_age_and_limits() {
    let limits = Limits::of(None);
    assert_eq!((limits.per_cluster, limits.outbound_per_node), (5, 2));
    let waiting = |uid: &str, node: &str, priority: u32, age: i64| Waiting {
        uid: uid.to_owned(),
        node: node.to_owned(),
        priority,
        created: Some(at(age)),
    };
    let all = || {
        vec![
            waiting("old", "n1", 0, 0),
            waiting("young", "n1", 0, 5),
            waiting("urgent", "n1", 100, 9),
            waiting("elsewhere", "n2", 0, 9),
        ]
    };
    let chosen = |active: &[&str]| {
        let active: Vec<String> = active.iter().map(|node| (*node).to_owned()).collect();
        let is_chosen = |uid: &&str| may_begin(uid, all(), &active, limits);
        ["old", "young", "urgent", "elsewhere"]
            .into_iter()
            .filter(|uid| is_chosen(uid))
            .collect::<Vec<_>>()
    };
    assert_eq!(chosen(&[]), ["old", "urgent", "elsewhere"]);
    assert_eq!(chosen(&["n1"]), ["urgent", "elsewhere"]);
    assert_eq!(chosen(&["n1", "n1"]), ["elsewhere"]);
    assert_eq!(chosen(&["n3", "n4", "n5"]), ["old", "urgent"]);
    assert_eq!(chosen(&["n3", "n4", "n5", "n6", "n7"]), [] as [&str; 0]);
    assert_eq!(priority(None), 0);
    assert_eq!(priority(Some(&MigrationPriority::SystemCritical)), 100);
}

#[test]
fn repeated_failures_wait_longer() {
    let wait =
        |failures, passed| back_off(failures, Some(at(0)), at(passed)).map(|wait| wait.as_secs());
    assert_eq!(wait(0, 0), None);
    assert_eq!(wait(1, 0), Some(20));
    assert_eq!(wait(1, 15), Some(5));
    assert_eq!(wait(1, 20), None);
    assert_eq!(wait(3, 0), Some(80));
    assert_eq!(wait(100, 0), Some(20 << 8));
}

#[test]
fn failures_of_a_guest_do_not_hold_back_another() {
    let ended = |guest: &str, phase: &str| -> Arc<Migration> {
        let migration = json!({
            "metadata": {
                "name": guest, "namespace": "n", "annotations": {annotations::EVACUATION_MIGRATION: ""},
            },
            "spec": {"vmiName": guest},
            "status": {"phase": phase, "phaseTransitionTimestamps": [
                {"phase": phase, "phaseTransitionTimestamp": at(0).to_string()},
            ]},
        });
        Arc::new(serde_json::from_value(migration).unwrap())
    };
    let all = [
        ended("a", "Failed"),
        ended("b", "Succeeded"),
        ended("a", "Failed"),
    ];
    let groups = by_guest(&all);
    let wait = |guest: &str| {
        let of_guest = groups.get(&Key::new("n", guest));
        let wait = back_off_of(of_guest.map_or(&[][..], Vec::as_slice), at(0));
        wait.map(|wait| wait.as_secs())
    };
    assert_eq!((wait("a"), wait("b"), wait("c")), (Some(40), None, None));
}

#[test]
fn policy_with_most_matching_labels_is_chosen() {
    let made = |name: &str, guest: Value, namespace: Value, seconds: i64| {
        let policy: MigrationPolicy = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"completionTimeoutPerGiB": seconds, "selectors": {
                "virtualMachineInstanceSelector": guest, "namespaceSelector": namespace}},
        }))
        .unwrap();
        Arc::new(policy)
    };
    let all = [
        made("a", json!({"app": "x"}), json!({}), 1),
        made("b", json!({"app": "x", "tier": "1"}), json!({}), 2),
        made("c", json!({"app": "x"}), json!({"zone": "z"}), 3),
        made(
            "d",
            json!({"app": "y", "tier": "1"}),
            json!({"zone": "z"}),
            4,
        ),
    ];
    let labels = |value: Value| serde_json::from_value(value).unwrap();
    let chosen = |guest: Value, namespace: Value| {
        let found = policy::choose(&all, &labels(guest), &labels(namespace));
        found.and_then(|policy| policy.metadata.name.clone())
    };
    assert_eq!(chosen(json!({"app": "x"}), json!({})).as_deref(), Some("a"));
    let both = json!({"app": "x", "tier": "1"});
    assert_eq!(chosen(both, json!({"zone": "z"})).as_deref(), Some("b"));
    assert_eq!(
        chosen(json!({"app": "x"}), json!({"zone": "z"})).as_deref(),
        Some("c")
    );
    assert_eq!(chosen(json!({"app": "z"}), json!({"zone": "z"})), None);

    let cluster = serde_json::from_value(json!({
        "completionTimeoutPerGiB": 60, "bandwidthPerMigration": "64Mi"}))
    .unwrap();
    let merged = policy::merge(Some(&cluster), Some(all[1].as_ref()));
    assert_eq!(merged.completion_timeout_per_gib, Some(2));
    assert_eq!(merged.bandwidth_per_migration.unwrap().0, "64Mi");
    assert_eq!(merged.progress_timeout, Some(150));
}

#[test]
fn permission_to_disrupt_the_guest_follows_that_for_post_copy() {
    let check = |cluster: Value, policy: Value, expected: [bool; 2]| {
        let settings = serde_json::from_value(cluster.clone()).unwrap();
        let whole = json!({"metadata": {"name": "p"}, "spec": policy});
        let whole = serde_json::from_value(whole).unwrap();
        let merged = policy::merge(Some(&settings), Some(&whole));
        let found = [merged.allow_post_copy, merged.allow_workload_disruption];
        assert_eq!(found, expected.map(Some), "{cluster} {policy}");
    };
    let allowed = || json!({"allowPostCopy": true});
    let forbidden = || json!({"allowPostCopy": false});
    check(json!({}), json!({"selectors": {}}), [false, false]);
    check(allowed(), json!({"selectors": {}}), [true, true]);
    let gentle = json!({"allowPostCopy": true, "allowWorkloadDisruption": false});
    check(gentle, json!({"selectors": {}}), [true, false]);
    let of_policy = |mut settings: Value| {
        settings["selectors"] = json!({});
        settings
    };
    check(json!({}), of_policy(allowed()), [true, true]);
    check(allowed(), of_policy(forbidden()), [false, false]);
    let pausing = json!({"allowPostCopy": false, "allowWorkloadDisruption": true});
    check(allowed(), of_policy(pausing), [false, true]);
}

#[test]
fn state_of_an_earlier_migration_is_replaced_as_a_whole() {
    let old = json!({"migrationUid": "1", "completed": true, "failed": true,
        "migrationConfiguration": {"bandwidthPerMigration": "1", "progressTimeout": 3}});
    let new = json!({"migrationUid": "2", "migrationConfiguration": {"progressTimeout": 150}});
    assert_eq!(
        in_place_of(&old, new),
        json!({"migrationUid": "2", "completed": null, "failed": null,
            "migrationConfiguration": {"bandwidthPerMigration": null, "progressTimeout": 150}})
    );
    let first = json!({"migrationUid": "1"});
    assert_eq!(in_place_of(&Value::Null, first.clone()), first);
}
