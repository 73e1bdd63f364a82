//! Tables: states of a backup, and what is done.

use std::sync::Arc;

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::backup::{VirtualMachineBackup, VirtualMachineBackupTracker};
use serde_json::{Value, json};

use super::act::{begin_patch, forget_patch};
use super::observe::{Export, Observed, Target, holds};
use super::plan::{Plan, Progress, plan};
use super::status::render;
use crate::view::Guest;

const VOLUME: &str = "b-backup-target-pvc";

/// Merges members into an object.
pub(super) fn merged(mut whole: Value, changes: &Value) -> Value {
    json_patch::merge(&mut whole, changes);
    whole
}

pub(super) fn backup(changes: &Value) -> Arc<VirtualMachineBackup> {
    let whole = json!({
        "metadata": {
            "name": "b", "namespace": "n", "finalizers": ["backup.kubevirt.io/vmbackup-protection"],
        },
        "spec": {
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"},
            "pvcName": "c",
        },
    });
    Arc::new(serde_json::from_value(merged(whole, changes)).unwrap())
}

pub(super) fn guest(changes: &Value) -> Arc<Guest> {
    let whole = json!({
        "metadata": {"name": "vm", "namespace": "n"},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "node"},
    });
    let vmi: VirtualMachineInstance = serde_json::from_value(merged(whole, changes)).unwrap();
    Arc::new(Guest::from(vmi))
}

pub(super) fn seen(backup_changes: &Value, guest_changes: &Value) -> Observed {
    Observed {
        backup: backup(backup_changes),
        vm: Some("vm".to_owned()),
        guest: Some(guest(guest_changes)),
        target: Target::FileSystem,
        tracker: None,
        kept_checkpoints: Vec::new(),
        export: Export::None,
        now: "2026-11-27T03:00:00Z".parse().unwrap(),
    }
}

/// A guest whose spec has the volume.
pub(super) fn attached(phase: &str, report: &Value) -> Value {
    json!({
        "spec": {"utilityVolumes": [{"name": VOLUME, "claimName": "c", "type": "Backup"}]},
        "status": {
            "volumeStatus": [{"name": VOLUME, "target": "", "phase": phase, "message": "m", "hotplugVolume": {}}],
            "changedBlockTracking": report,
        },
    })
}

/// A guest whose spec has lost the volume.
pub(super) fn leaving(report: &Value) -> Value {
    let whole = attached("Detaching", report);
    merged(whole, &json!({"spec": null}))
}

pub(super) fn report(members: &Value) -> Value {
    let status = json!({"backupName": "b", "startTimestamp": "2026-11-27T02:00:00Z"});
    json!({"state": "", "backupStatus": merged(status, members)})
}

pub(super) fn progressing(reason: &str) -> Value {
    json!({"type": "Progressing", "status": "True", "reason": reason, "message": "m",
           "lastTransitionTime": "2026-11-27T02:00:00Z"})
}

fn with_conditions(all: &[Value]) -> Value {
    json!({"status": {"conditions": all}})
}

pub(super) fn copied() -> Value {
    json!({"status": {
        "conditions": [progressing("Initiated")], "includedVolumes": [{"volumeName": "root"}],
    }})
}

pub(super) fn complete() -> Value {
    with_conditions(&[json!({
        "type": "Complete", "status": "True", "reason": "Completed", "message": "",
        "lastTransitionTime": "2026-11-27T02:00:00Z",
    })])
}

/// The step, or the name of the progress with the beginning of its message.
pub(super) fn shown(plan: &Plan) -> String {
    match (&plan.step, &plan.progress) {
        (Some(step), _) => format!("{step:?}"),
        (None, Progress::Waits(message)) => format!("waits: {message}"),
        (None, Progress::Copying(message)) => format!("copies: {message}"),
        (None, Progress::Offering(message)) => format!("offers: {message}"),
        (None, Progress::Failed(reason, message)) => format!("{reason}: {message}"),
        (None, progress) => format!("{progress:?}"),
    }
}

fn check(observed: &Observed, expected: &str) {
    let found = shown(&plan(observed));
    assert_eq!(found, expected, "{observed:#?}");
}

#[test]
fn backup_waits_for_its_guest_and_its_claim() {
    let none = json!({});
    let first = json!({"metadata": {"finalizers": null}});
    check(&seen(&first, &none), "AddFinalizer");
    check(&seen(&none, &none), "Attach");
    let without_tracker = Observed {
        vm: None,
        guest: None,
        backup: backup(&json!({"spec": {"source": {"name": "t"}}})),
        ..seen(&none, &none)
    };
    check(
        &without_tracker,
        "waits: there is no VirtualMachineBackupTracker t",
    );
    for (changes, expected) in [
        (
            json!({"status": {"phase": "Scheduled"}}),
            "waits: VM vm does not run; start it",
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-11-27T02:00:00Z"}}),
            "waits: the guest of VM vm is ending",
        ),
        (
            json!({"status": {"migrationState": {"startTimestamp": "2026-11-27T02:00:00Z"}}}),
            "waits: the guest of VM vm is migrating",
        ),
        (
            json!({"spec": {"utilityVolumes": [{"name": "o", "claimName": "c", "type": "Backup"}]}}),
            "waits: another backup of VM vm is in progress",
        ),
        (
            json!({"status": {"changedBlockTracking": report(&json!({"backupName": "o"}))}}),
            "waits: another backup of VM vm is in progress",
        ),
        (leaving(&Value::Null), "waits: claim c is being attached"),
        (
            attached("Pending", &Value::Null),
            "waits: claim c is being attached on node node: m",
        ),
        (attached("MountedToPod", &Value::Null), "Begin"),
    ] {
        check(&seen(&none, &changes), expected);
    }
    for (target, expected) in [
        (
            Target::Missing,
            "waits: there is no PersistentVolumeClaim c; create it",
        ),
        (
            Target::BlockDevice,
            "Failed: claim c is a block device; use one with volumeMode Filesystem",
        ),
    ] {
        check(
            &Observed {
                target,
                ..seen(&none, &none)
            },
            expected,
        );
    }
}

#[test]
fn copy_is_followed_until_its_claim_has_left() {
    let (none, begun) = (json!({}), with_conditions(&[progressing("Initiated")]));
    let done = || report(&json!({"completed": true, "volumes": [{"volumeName": "root"}]}));
    let failed = || report(&json!({"completed": true, "failed": true, "backupMsg": "no space"}));
    let detached = |report: Value| json!({"status": {"changedBlockTracking": report}});
    let over =
        |report: Value| json!({"status": {"phase": "Failed", "changedBlockTracking": report}});
    let lost = "SourceLost: the guest ended before its backup was complete";
    for (backup, guest, expected) in [
        (
            &none,
            attached("MountedToPod", &report(&none)),
            "copies: the disks are being copied",
        ),
        (
            &begun,
            attached("MountedToPod", &report(&json!({"backupMsg": "30 %"}))),
            "copies: 30 %",
        ),
        (&begun, over(report(&none)), lost),
        // Another guest of the VM.
        (&begun, none.clone(), lost),
        // The result first.
        (&begun, attached("MountedToPod", &done()), "Leaving"),
        (&copied(), attached("MountedToPod", &done()), "Detach"),
        (&copied(), leaving(&done()), "Kept"),
        (&copied(), detached(done()), "Complete"),
        (&copied(), over(done()), "Complete"),
        (&copied(), none.clone(), "Complete"),
        (&begun, attached("MountedToPod", &failed()), "Detach"),
        (&begun, leaving(&failed()), "Kept"),
        (&begun, detached(failed()), "Failed: no space"),
        (
            &begun,
            detached(report(&json!({"completed": true}))),
            "Failed: the copy ended without a disk",
        ),
    ] {
        check(&seen(backup, &guest), expected);
    }
    let gone = Observed {
        guest: None,
        ..seen(&begun, &none)
    };
    check(&gone, lost);
}

/// Of an earlier backup of the same name, whose volume has another claim.
#[test]
fn report_of_another_backup_does_not_count() {
    let none = json!({});
    let done = report(&json!({"completed": true, "volumes": [{"volumeName": "root"}]}));
    let mut other = attached("MountedToPod", &done);
    let own = seen(&none, &other);
    assert!(own.report().is_some() && holds(own.guest.as_ref().unwrap(), &own.backup));
    other["spec"]["utilityVolumes"][0]["claimName"] = json!("other");
    let foreign = seen(&none, &other);
    assert!(!holds(foreign.guest.as_ref().unwrap(), &foreign.backup));
    check(&foreign, "waits: another backup of VM vm is in progress");
}

#[test]
fn backup_leaves_nothing_in_its_guest() {
    let none = json!({});
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-27T02:00:00Z"}});
    let detached = json!({"status": {"changedBlockTracking": report(&none)}});
    for (backup, waits) in [(&deleted, "Aborting"), (&complete(), "Kept")] {
        check(
            &seen(backup, &attached("MountedToPod", &report(&none))),
            "Detach",
        );
        check(&seen(backup, &leaving(&report(&none))), waits);
        check(&seen(backup, &detached), "Forget");
        check(&seen(backup, &none), "RemoveFinalizer");
        let gone = Observed {
            guest: None,
            ..seen(backup, &none)
        };
        check(&gone, "RemoveFinalizer");
    }
    let mut settled = complete();
    settled["metadata"] = json!({"finalizers": null});
    check(&seen(&settled, &none), "Kept");
}

/// The conditions as `type status reason`.
fn conditions(observed: &Observed, progress: &Progress) -> Vec<String> {
    let status = render(observed, progress);
    let all = status.conditions.into_iter();
    all.map(|one| format!("{} {} {}", one.type_, one.status, one.reason))
        .collect()
}

#[test]
fn conditions_show_progress_and_quiescing() {
    let none = json!({});
    let with = |quiesce: &str| {
        let members = json!({"completed": true, "quiesceStatus": quiesce, "volumes": [{"volumeName": "root"}]});
        seen(
            &copied(),
            &json!({"status": {"changedBlockTracking": report(&members)}}),
        )
    };
    let waits = Progress::Waits("m".to_owned());
    let failed = Progress::Failed(reasons::Reason::SourceLost, "m".to_owned());
    let table: [(Observed, &Progress, &[&str]); 5] = [
        (
            seen(&none, &none),
            &waits,
            &["Progressing True Initializing"],
        ),
        (
            with("Succeeded"),
            &Progress::Complete,
            &[
                "Complete True Completed",
                "Progressing False Completed",
                "Quiesced True QuiesceSucceeded",
            ],
        ),
        (
            with("Skipped"),
            &Progress::Complete,
            &[
                "Complete True Completed",
                "Progressing False Completed",
                "Quiesced False QuiesceSkipped",
            ],
        ),
        (
            with("Failed"),
            &Progress::Complete,
            &[
                "Complete True CompletedWithWarning",
                "Progressing False CompletedWithWarning",
                "Quiesced False QuiesceFailed",
            ],
        ),
        (
            seen(&none, &none),
            &failed,
            &["Failed True SourceLost", "Progressing False SourceLost"],
        ),
    ];
    for (observed, progress, expected) in table {
        assert_eq!(conditions(&observed, progress), expected, "{progress:?}");
    }
    let members =
        json!({"completed": true, "backupMsg": "directory d", "volumes": [{"volumeName": "root"}]});
    let begun = with_conditions(&[progressing("Initiated")]);
    let observed = seen(&begun, &attached("MountedToPod", &report(&members)));
    let status = render(&observed, &Progress::Leaving);
    assert_eq!(status.included_volumes[0].volume_name, "root");
    assert_eq!(status.conditions[0].message, "claim c, directory d");
    assert_eq!(json!(status.type_), "Full");
}

const OWN: &str = "b-20261127-020000";
const PARENT: &str = "a-20261126-020000";

/// A backup of tracker `t` of VM `vm`, which has this last checkpoint.
fn tracked(backup_changes: &Value, guest_changes: &Value, latest: Option<&str>) -> Observed {
    let of_tracker = json!({"spec": {"source": {
        "apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": "t",
    }}});
    let latest = latest.map(|name| json!({"latestCheckpoint": {"name": name}}));
    let tracker: VirtualMachineBackupTracker = serde_json::from_value(json!({
        "metadata": {"name": "t", "namespace": "n"},
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}},
        "status": latest,
    }))
    .unwrap();
    Observed {
        tracker: Some(Arc::new(tracker)),
        ..seen(&merged(backup_changes.clone(), &of_tracker), guest_changes)
    }
}

/// Of a backup that built on this checkpoint, or made its own.
fn made(checkpoint: &Value) -> Value {
    let members = json!({
        "completed": true, "volumes": [{"volumeName": "root"}], "checkpointName": checkpoint,
    });
    attached("MountedToPod", &report(&members))
}

#[test]
fn annotations_of_a_backup_go_with_it() {
    let none = json!({});
    for observed in [seen(&none, &none), tracked(&none, &none, Some(PARENT))] {
        let (begun, left) = (begin_patch(&observed), forget_patch(&observed));
        let left = left["metadata"]["annotations"].as_object().unwrap();
        let begun = begun["metadata"]["annotations"].as_object().unwrap();
        assert!(
            !begun.is_empty() && begun.keys().eq(left.keys()),
            "{begun:?} {left:?}"
        );
        assert!(left.values().all(Value::is_null), "{left:?}");
    }
}

#[test]
fn tracker_gets_the_checkpoint_before_the_claim_leaves() {
    for (checkpoint, latest, expected) in [
        (json!(OWN), None, "Track"),
        (json!(PARENT), Some(PARENT), "Track"),
        (json!(OWN), Some(OWN), "Detach"),
        // Nothing can build on it: the tracker keeps what it has.
        (Value::Null, Some(PARENT), "Detach"),
    ] {
        let observed = tracked(&copied(), &made(&checkpoint), latest);
        check(&observed, expected);
    }
    // The result first.
    let begun = with_conditions(&[progressing("Initiated")]);
    check(&tracked(&begun, &made(&json!(OWN)), None), "Leaving");
    let failed = json!({"completed": true, "failed": true, "checkpointName": OWN});
    let failed = attached("MountedToPod", &report(&failed));
    check(&tracked(&begun, &failed, None), "Detach");
    // Deleted, and made again for another VM.
    let mut other = tracked(&copied(), &made(&json!(OWN)), None);
    other.vm = Some("other".to_owned());
    check(&other, "Detach");
    let gone = Observed {
        tracker: None,
        ..tracked(&copied(), &made(&json!(OWN)), None)
    };
    check(&gone, "Detach");
    // Of a VM, not of a tracker.
    check(&seen(&copied(), &made(&Value::Null)), "Detach");
}

#[test]
fn new_checkpoint_has_the_name_of_the_directory() {
    let observed = tracked(&copied(), &made(&json!(PARENT)), Some(PARENT));
    let expected = json!({
        "name": OWN, "creationTime": "2026-11-27T02:00:00Z", "volumes": [{"volumeName": "root"}],
    });
    assert_eq!(json!(observed.new_checkpoint()), expected);
}

#[test]
fn parent_is_the_last_checkpoint_unless_all_is_wanted() {
    let none = json!({});
    assert_eq!(tracked(&none, &none, Some(PARENT)).parent(), Some(PARENT));
    assert_eq!(tracked(&none, &none, None).parent(), None);
    let full = json!({"spec": {"forceFullBackup": true}});
    assert_eq!(tracked(&full, &none, Some(PARENT)).parent(), None);
}

#[test]
fn type_says_what_was_copied() {
    let begun = with_conditions(&[progressing("Initiated")]);
    for (checkpoint, kind, own) in [
        (json!(PARENT), "Incremental", json!(OWN)),
        (json!(OWN), "Full", json!(OWN)),
        (Value::Null, "Full", Value::Null),
    ] {
        let observed = tracked(&begun, &made(&checkpoint), Some(PARENT));
        let status = json!(render(&observed, &Progress::Leaving));
        assert_eq!(
            (&status["type"], &status["checkpointName"]),
            (&json!(kind), &own)
        );
    }
    let running = attached("MountedToPod", &report(&json!({"checkpointName": PARENT})));
    let copying = Progress::Copying("m".to_owned());
    let observed = tracked(&begun, &running, Some(PARENT));
    assert_eq!(json!(render(&observed, &copying))["type"], Value::Null);
    let observed = tracked(&begun, &running, None);
    assert_eq!(json!(render(&observed, &copying))["type"], "Full");
}
