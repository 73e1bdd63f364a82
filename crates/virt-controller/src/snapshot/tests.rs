//! The table of plans.

use std::sync::Arc;

use jiff::Timestamp;
use kubevirt_api::vm_status::VolumeUpdateState;
use kubevirt_api::{annotations, finalizers};
use reasons::Reason;
use serde_json::{Value, json};

use super::act::is_settled;
use super::hold::{ANNOTATION, By, Hold};
use super::observe::{Content, Copy, Observed, Vm, state_without_guest};
use super::plan::{Plan, Progress, Step, depends_on_guest, plan};
use super::source::{Disk, DiskState, with_plugs};
use super::status;
use crate::data_volume::ClaimUser;
use crate::view::{Claim, DataVolume, Plug, Purpose};

const CREATED: &str = "2026-11-21T12:00:00Z";

/// The state of a snapshot in the middle of its life.
struct Case {
    finalizers: Value,
    deleted: bool,
    phase: &'static str,
    policy: &'static str,
    hold: Option<Hold>,
    lock: Option<&'static str>,
    /// Finalizers of the VM.
    vm_finalizers: Vec<String>,
    guest: Value,
    content: Option<Value>,
    copies: Vec<Copy>,
    disks: Vec<DiskState>,
    minutes: i64,
    deadline: Option<&'static str>,
    vm_deleted: bool,
}

fn case() -> Case {
    Case {
        finalizers: json!([finalizers::SNAPSHOT]),
        deleted: false,
        phase: "InProgress",
        policy: "Delete",
        hold: None,
        lock: Some("s"),
        vm_finalizers: Vec::new(),
        guest: Value::Null,
        content: None,
        copies: Vec::new(),
        disks: vec![DiskState::Copyable("c".to_owned())],
        minutes: 1,
        deadline: None,
        vm_deleted: false,
    }
}

fn running(conditions: &Value) -> Value {
    json!({
        "metadata": {"name": "a", "uid": "vmi"},
        "status": {"phase": "Running", "conditions": conditions},
    })
}

fn copy(status: &Value) -> Copy {
    let object = json!({"metadata": {"name": "x"}, "spec": {}, "status": status});
    Copy {
        volume: "data".to_owned(),
        claim: "data".to_owned(),
        name: "x".to_owned(),
        object: Some(serde_json::from_value(object).unwrap()),
    }
}

fn missing() -> Copy {
    Copy {
        object: None,
        ..copy(&Value::Null)
    }
}

fn hold(by: By, uid: &str) -> Hold {
    let created: Timestamp = CREATED.parse().unwrap();
    Hold {
        by,
        uid: uid.to_owned(),
        since: created.as_second() + 60,
        // Five minutes after the creation.
        until: created.as_second() + 300,
        agent_failed: false,
    }
}

impl Case {
    fn observed(&self) -> Observed {
        let annotations = self
            .hold
            .as_ref()
            .map(|hold| json!({ANNOTATION: json!(hold).to_string()}));
        let snapshot = json!({
            "metadata": {
                "name": "s", "namespace": "n", "uid": "u", "creationTimestamp": CREATED,
                "finalizers": self.finalizers, "annotations": annotations,
                "deletionTimestamp": self.deleted.then_some(CREATED),
            },
            "spec": {
                "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"},
                "deletionPolicy": self.policy,
                "failureDeadline": self.deadline,
            },
            "status": {"phase": self.phase},
        });
        let created: Timestamp = CREATED.parse().unwrap();
        let disk = |state: &DiskState| Disk {
            volume: "data".to_owned(),
            claim: "data".to_owned(),
            state: state.clone(),
        };
        let status = json!({"snapshotInProgress": self.lock});
        Observed {
            snapshot: Arc::new(serde_json::from_value(snapshot).unwrap()),
            vm: Some(Vm {
                object: json!({"metadata": {
                    "name": "a", "deletionTimestamp": self.vm_deleted.then_some(CREATED),
                }}),
                uid: "vm".to_owned(),
                finalizers: self.vm_finalizers.clone(),
                status: serde_json::from_value(status).unwrap(),
                ..Vm::default()
            }),
            guest: (!self.guest.is_null())
                .then(|| serde_json::from_value(self.guest.clone()).unwrap()),
            content: self.content.as_ref().map(|status| Content {
                object: serde_json::from_value(json!({
                    "metadata": {"name": "c"},
                    "spec": {"virtualMachineSnapshotName": "s"},
                    "status": status,
                }))
                .unwrap(),
                copies: self.copies.clone(),
            }),
            disks: self.disks.iter().map(disk).collect(),
            others: Vec::new(),
            busy: None,
            now: created + jiff::SignedDuration::from_mins(self.minutes),
        }
    }

    fn plan(&self) -> Plan {
        plan(&self.observed())
    }

    fn step(&self) -> Option<Step> {
        self.plan().step
    }

    /// What it waits for, or why it has failed.
    fn problem(&self) -> Reason {
        match self.plan().progress {
            Progress::Waits { reason, .. } | Progress::Failed { reason, .. } => reason,
            other => panic!("no problem: {other:?}"),
        }
    }
}

#[test]
fn vm_is_locked_before_its_definition_is_copied() {
    let new = Case {
        finalizers: json!([]),
        lock: None,
        phase: "",
        ..case()
    };
    assert_eq!(new.step(), Some(Step::AddFinalizer));
    let protected = Case {
        lock: None,
        ..case()
    };
    assert_eq!(protected.step(), Some(Step::Lock));
    assert_eq!(case().step(), Some(Step::CreateContent));
    let mut moving = Case {
        lock: None,
        ..case()
    }
    .observed();
    if let Some(vm) = &mut moving.vm {
        vm.status.volume_update_state = Some(VolumeUpdateState::default());
    }
    assert_eq!(plan(&moving).step, None);
    let busy = Case {
        lock: Some("other"),
        ..case()
    };
    assert_eq!(
        (busy.step(), busy.problem()),
        (None, Reason::SnapshotSourceBusy)
    );
}

#[test]
fn problems_of_disks_keep_the_vm_unlocked() {
    let cannot = || DiskState::NotCopyable("no class".to_owned());
    for (disks, expected) in [
        (
            vec![DiskState::Missing],
            Some(Reason::SnapshotSourceMissing),
        ),
        (vec![DiskState::Unbound], Some(Reason::SnapshotSourceBusy)),
        (
            vec![DiskState::InUse("p".to_owned())],
            Some(Reason::SnapshotSourceBusy),
        ),
        (
            vec![DiskState::Unpopulated("why".to_owned())],
            Some(Reason::SnapshotSourceBusy),
        ),
        (
            vec![cannot(), cannot()],
            Some(Reason::SnapshotsNotSupported),
        ),
        (vec![cannot(), DiskState::Copyable("c".to_owned())], None),
        (vec![], None),
    ] {
        let one = Case {
            lock: None,
            disks,
            ..case()
        };
        match expected {
            Some(reason) => assert_eq!((one.step(), one.problem()), (None, reason)),
            None => assert_eq!(one.step(), Some(Step::Lock)),
        }
    }
}

#[test]
fn claim_of_a_stopped_vm_is_copied_when_its_data_is_complete() {
    let claim = |metadata: Value| -> Claim {
        let mut claim = json!({"metadata": metadata, "status": {"phase": "Bound"}});
        claim["metadata"]["name"] = "data".into();
        serde_json::from_value(claim).unwrap()
    };
    let plain = || claim(json!({}));
    let user = |claim: &str, phase: &str| -> ClaimUser {
        let pod = json!({
            "metadata": {"name": "p"}, "status": {"phase": phase},
            "spec": {"containers": [], "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": claim}},
            ]},
        });
        serde_json::from_value(pod).unwrap()
    };
    for (pod, expected) in [
        (user("data", "Running"), true),
        (user("data", "Pending"), true),
        (user("data", "Succeeded"), false),
        (user("other", "Running"), false),
    ] {
        let in_use = expected.then(|| DiskState::InUse("p".to_owned()));
        assert_eq!(state_without_guest(&plain(), None, &[pod]), in_use);
    }
    let is_complete = |claim: &Claim, data_volume: Option<&DataVolume>| {
        let state = state_without_guest(claim, data_volume, &[]);
        assert!(matches!(state, None | Some(DiskState::Unpopulated(_))));
        state.is_none()
    };
    let owner = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "data", "uid": "u",
        "controller": true,
    });
    let owned = claim(json!({"ownerReferences": [owner]}));
    let volume = |uid: &str, phase: &str| -> DataVolume {
        let volume = json!({"metadata": {"uid": uid}, "spec": {}, "status": {"phase": phase}});
        serde_json::from_value(volume).unwrap()
    };
    assert!(is_complete(&owned, Some(&volume("u", "Succeeded"))));
    assert!(!is_complete(&owned, Some(&volume("u", "ImportInProgress"))));
    assert!(!is_complete(&owned, Some(&volume("old", "Succeeded"))));
    assert!(!is_complete(&owned, None));
    assert!(is_complete(&plain(), Some(&volume("u", "Failed"))));
    let target = |phase: &str| {
        let marks = json!({
            annotations::CDI_UPLOAD_TARGET: "", annotations::CDI_POD_PHASE: phase,
        });
        claim(json!({"annotations": marks}))
    };
    assert!(!is_complete(&target("Running"), None));
    assert!(is_complete(&target("Succeeded"), None));
}

#[test]
fn guest_is_held_by_agent_pause_user_or_lock() {
    let yes = |kind: &str| json!({"type": kind, "status": "True"});
    for (guest, by, uid) in [
        (Value::Null, By::Lock, ""),
        (running(&json!([])), By::Pause, "vmi"),
        (running(&json!([yes("AgentConnected")])), By::Agent, "vmi"),
        (
            running(&json!([yes("AgentConnected"), yes("Paused")])),
            By::User,
            "vmi",
        ),
    ] {
        let one = Case {
            guest,
            content: Some(Value::Null),
            copies: vec![missing()],
            ..case()
        };
        let hold = hold(by, uid);
        let expected = match by {
            By::Pause => Step::Pause(hold),
            By::Lock | By::Agent | By::User => Step::Copy(hold),
        };
        assert_eq!(one.step(), Some(expected));
    }
    let starting = Case {
        guest: json!({"metadata": {"name": "a"}, "status": {"phase": "Scheduling"}}),
        ..case()
    };
    assert_eq!(starting.problem(), Reason::SnapshotSourceBusy);
}

#[test]
fn disks_are_copied_within_one_hold_or_the_snapshot_fails() {
    let paused = json!([{"type": "Paused", "status": "True"}]);
    let begun = |hold: Hold, minutes: i64| Case {
        guest: running(&paused),
        hold: Some(hold),
        content: Some(Value::Null),
        copies: vec![copy(&Value::Null), missing()],
        minutes,
        ..case()
    };
    let held = begun(hold(By::Pause, "vmi"), 1);
    assert_eq!(held.step(), Some(Step::Copy(hold(By::Pause, "vmi"))));
    // Another guest, a guest that was started, a guest that is thawed.
    for (by, uid) in [(By::Pause, "old"), (By::Lock, "")] {
        assert_eq!(
            begun(hold(by, uid), 1).problem(),
            Reason::SnapshotInconsistent
        );
    }
    // A guest that was resumed.
    for by in [By::Pause, By::User] {
        let resumed = Case {
            guest: running(&json!([])),
            ..begun(hold(by, "vmi"), 1)
        };
        assert_eq!(resumed.problem(), Reason::SnapshotInconsistent);
    }
    let mut thawed = hold(By::Agent, "vmi");
    thawed.until -= 240;
    assert_eq!(begun(thawed, 2).problem(), Reason::SnapshotInconsistent);
    let created = json!({"creationTime": CREATED});
    let mut all = begun(hold(By::Pause, "vmi"), 1);
    all.copies = vec![copy(&created), copy(&Value::Null)];
    assert_eq!((all.step(), all.plan().progress), (None, Progress::Copying));
    all.copies = vec![copy(&created), copy(&created)];
    assert_eq!(all.step(), Some(Step::NoteCreated));
    let late = begun(hold(By::Pause, "vmi"), 5);
    let Progress::Failed { reason, .. } = late.plan().progress else {
        panic!("not failed");
    };
    assert_eq!(
        (late.step(), reason),
        (None, Reason::SnapshotDeadlineExceeded)
    );
}

#[test]
fn guest_that_we_have_paused_never_counts_as_paused_by_a_user() {
    let paused = json!([{"type": "Paused", "status": "True"}]);
    let noted = hold(By::Pause, "vmi");
    let mut unreadable = hold(By::Pause, "");
    unreadable.until = 0;
    for before in [noted, unreadable] {
        let one = Case {
            guest: running(&paused),
            hold: Some(before.clone()),
            content: Some(Value::Null),
            copies: vec![missing()],
            ..case()
        };
        assert_eq!(one.step(), Some(Step::Copy(hold(By::Pause, "vmi"))));
        let not_shown_yet = Case {
            guest: running(&json!([])),
            hold: Some(before.clone()),
            ..one
        };
        let pause = Step::Pause(hold(By::Pause, "vmi"));
        assert_eq!(not_shown_yet.step(), Some(pause));
        // Another request does not prolong the hold.
        let without_deadline = Case {
            deadline: Some("0s"),
            ..not_shown_yet
        };
        let Some(Step::Pause(again)) = without_deadline.step() else {
            panic!("not paused");
        };
        let is_known = again.until == hold(By::Pause, "vmi").until;
        assert_eq!(is_known, !before.uid.is_empty());
    }
}

#[test]
fn guest_is_held_once_even_without_a_deadline() {
    let paused = json!([{"type": "Paused", "status": "True"}]);
    let agent = json!([{"type": "AgentConnected", "status": "True"}]);
    for (by, conditions) in [
        (By::Pause, &paused),
        (By::Pause, &json!([])),
        (By::Agent, &agent),
    ] {
        let one = Case {
            guest: running(conditions),
            hold: Some(hold(by, "vmi")),
            content: Some(Value::Null),
            copies: vec![missing()],
            deadline: Some("0s"),
            minutes: 5,
            ..case()
        };
        assert_eq!(one.step(), None, "{by:?}");
        assert!(
            matches!(
                one.plan().progress,
                Progress::Failed {
                    reason: Reason::SnapshotDeadlineExceeded,
                    ..
                }
            ),
            "{by:?}"
        );
    }
}

#[test]
fn hold_is_over_only_if_the_guest_shows_it() {
    let yes = |kind: &str| json!([{"type": kind, "status": "True"}]);
    let settled = |by: By, conditions: &Value, minutes: i64| {
        let one = Case {
            guest: running(conditions),
            hold: Some(hold(by, "vmi")),
            minutes,
            ..case()
        };
        is_settled(&one.observed(), &hold(by, "vmi"))
    };
    // A request to pause it may still be under way.
    assert!(!settled(By::Pause, &json!([]), 2));
    assert!(settled(By::Pause, &json!([]), 4));
    assert!(!settled(By::Pause, &yes("Paused"), 4));
    // The launcher thaws it at the limit of the hold.
    assert!(!settled(By::Agent, &yes("AgentConnected"), 4));
    assert!(settled(By::Agent, &yes("AgentConnected"), 5));
    assert!(settled(By::Agent, &json!([]), 1));
}

#[test]
fn spec_of_a_running_guest_has_its_hot_plugged_volumes() {
    let spec = |volumes: Value, disks: Value| {
        json!({
            "template": {"spec": {"volumes": volumes, "domain": {"devices": {"disks": disks}}}},
        })
    };
    let volume = |name: &str| {
        json!({
            "name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": true},
        })
    };
    let (root, edited) = (
        json!({"name": "root", "persistentVolumeClaim": {"claimName": "root"}}),
        json!({"name": "root", "persistentVolumeClaim": {"claimName": "other"}}),
    );
    let started = spec(
        json!([root, volume("gone"), volume("medium")]),
        json!([{"name": "root"}, {"name": "gone"}, {"name": "medium", "cdrom": {}}]),
    );
    let now = spec(
        json!([edited, volume("new"), volume("later")]),
        json!([{"name": "root"}, {"name": "new"}, {"name": "later"}]),
    );
    let plugs = [Plug {
        volume: "new".to_owned(),
        claim: "new".to_owned(),
        purpose: Purpose::Disk,
    }];
    let expected = spec(
        json!([root, volume("new")]),
        json!([{"name": "root"}, {"name": "medium", "cdrom": {}}, {"name": "new"}]),
    );
    assert_eq!(with_plugs(started, &now, &plugs), expected);
}

#[test]
fn guest_and_vm_are_released_when_all_is_copied_or_over() {
    let ready = json!({"creationTime": CREATED, "readyToUse": true});
    let done = |by: By, lock: Option<&'static str>| Case {
        guest: running(&json!([])),
        hold: Some(hold(by, "vmi")),
        lock,
        content: Some(json!({"creationTime": CREATED})),
        copies: vec![copy(&ready)],
        ..case()
    };
    let release = |by| Some(Step::Release(hold(by, "vmi")));
    // A frozen guest first; a paused one after its VM is unlocked.
    assert_eq!(done(By::Agent, Some("s")).step(), release(By::Agent));
    assert_eq!(done(By::Pause, Some("s")).step(), Some(Step::Unlock));
    assert_eq!(done(By::Pause, None).step(), release(By::Pause));
    assert_eq!(done(By::User, None).plan().progress, Progress::Complete);
    for (phase, deleted) in [
        ("Failed", false),
        ("Succeeded", false),
        ("InProgress", true),
    ] {
        let over = Case {
            deleted,
            phase,
            ..done(By::Pause, None)
        };
        assert_eq!(over.step(), release(By::Pause), "{phase}");
    }
    let storing = Case {
        hold: None,
        lock: None,
        copies: vec![copy(&json!({"creationTime": CREATED, "readyToUse": false}))],
        minutes: 60,
        ..done(By::User, None)
    };
    assert_eq!(storing.problem(), Reason::VolumeSnapshotNotReady);
    let lost = Case {
        phase: "Succeeded",
        copies: vec![missing()],
        ..done(By::User, None)
    };
    assert!(matches!(lost.plan().progress, Progress::Lost(_)));
}

#[test]
fn vm_that_is_protected_and_not_locked_is_released() {
    let protected = || Case {
        lock: None,
        vm_finalizers: vec![finalizers::SNAPSHOT_SOURCE.to_owned()],
        ..case()
    };
    assert_eq!(protected().step(), Some(Step::Lock));
    for (phase, deleted) in [("Failed", false), ("InProgress", true)] {
        let over = Case {
            deleted,
            phase,
            ..protected()
        };
        assert_eq!(over.step(), Some(Step::Unlock), "{phase}");
    }
    let vm_goes = Case {
        vm_deleted: true,
        ..protected()
    };
    assert_eq!(vm_goes.step(), Some(Step::Unlock));
    let of_another = Case {
        deleted: true,
        lock: Some("other"),
        ..protected()
    };
    assert_eq!(of_another.step(), Some(Step::RemoveFinalizer));
}

#[test]
fn ended_snapshots_do_not_follow_the_guest() {
    for (phase, deleted, by, expected) in [
        ("", false, None, true),
        ("InProgress", false, None, true),
        ("Succeeded", false, None, false),
        ("Failed", false, None, false),
        ("Succeeded", false, Some(By::Lock), false),
        ("Failed", false, Some(By::Pause), true),
        ("Succeeded", true, None, true),
    ] {
        let one = Case {
            phase,
            deleted,
            hold: by.map(|by| hold(by, "vmi")),
            ..case()
        };
        let found = depends_on_guest(&one.observed().snapshot);
        assert_eq!(found, expected, "{phase} {deleted} {by:?}");
    }
}

#[test]
fn deletion_policy_decides_about_the_content() {
    for (policy, content, expected) in [
        ("Delete", Some(Value::Null), Step::DeleteContent),
        ("Retain", Some(Value::Null), Step::KeepContent),
        ("Delete", None, Step::RemoveFinalizer),
    ] {
        let one = Case {
            deleted: true,
            phase: "Succeeded",
            lock: None,
            policy,
            content,
            ..case()
        };
        assert_eq!(one.step(), Some(expected), "{policy}");
    }
}

#[test]
fn status_has_conditions_and_indications() {
    let one = Case {
        guest: running(&json!([])),
        hold: Some(hold(By::Pause, "vmi")),
        content: Some(json!({"creationTime": CREATED})),
        copies: vec![copy(&json!({"creationTime": CREATED}))],
        ..case()
    };
    let observed = one.observed();
    for (progress, phase, ready) in [
        (Progress::Copying, "InProgress", false),
        (Progress::Complete, "Succeeded", true),
        (Progress::Lost("gone".to_owned()), "Succeeded", false),
        (
            Progress::Failed {
                reason: Reason::SnapshotDeadlineExceeded,
                message: "late".to_owned(),
            },
            "Failed",
            false,
        ),
    ] {
        let status = json!(status::render(&observed, &progress));
        assert_eq!(status["phase"], phase);
        assert_eq!(status["readyToUse"], ready, "{phase}");
        assert_eq!(status["sourceUID"], "vm");
        assert_eq!(status["indications"], json!(["Online", "NoGuestAgent"]));
        assert_eq!(
            status["snapshotVolumes"]["includedVolumes"],
            json!(["data"])
        );
    }
}
