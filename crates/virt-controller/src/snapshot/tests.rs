//! The table of plans.

use std::sync::Arc;

use jiff::Timestamp;
use kubevirt_api::finalizers;
use reasons::Reason;
use serde_json::{Value, json};

use super::hold::{ANNOTATION, By, Hold};
use super::observe::{Content, Copy, Observed, Vm};
use super::plan::{Plan, Progress, Step, plan};
use super::source::{Disk, DiskState, with_plugs};
use super::status;
use crate::view::Plug;

const CREATED: &str = "2026-11-21T12:00:00Z";

/// The state of a snapshot in the middle of its life.
struct Case {
    finalizers: Value,
    deleted: bool,
    phase: &'static str,
    policy: &'static str,
    hold: Option<Hold>,
    lock: Option<&'static str>,
    guest: Value,
    content: Option<Value>,
    copies: Vec<Copy>,
    disks: Vec<DiskState>,
    minutes: i64,
}

fn case() -> Case {
    Case {
        finalizers: json!([finalizers::SNAPSHOT]),
        deleted: false,
        phase: "InProgress",
        policy: "Delete",
        hold: None,
        lock: Some("s"),
        guest: Value::Null,
        content: None,
        copies: Vec::new(),
        disks: vec![DiskState::Copyable("c".to_owned())],
        minutes: 1,
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
                object: json!({"metadata": {"name": "a"}}),
                uid: "vm".to_owned(),
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
    let mut old = hold(By::Pause, "vmi");
    old.until -= 250;
    let mut unreadable = hold(By::Pause, "");
    unreadable.until = 0;
    for before in [old, unreadable] {
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
            hold: Some(before),
            ..one
        };
        let pause = Step::Pause(hold(By::Pause, "vmi"));
        assert_eq!(not_shown_yet.step(), Some(pause));
    }
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
