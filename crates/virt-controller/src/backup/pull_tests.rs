//! Tables of mode `Pull`.

use std::sync::Arc;

use kubevirt_api::export::VirtualMachineExport;
use serde_json::{Value, json};

use super::act::{begin_patch, forget_patch};
use super::observe::{Export, Observed};
use super::plan::{Progress, plan};
use super::status::render;
use super::tests::{attached, complete, leaving, merged, progressing, report, seen, shown};

fn pull(changes: &Value) -> Value {
    let whole = json!({
        "metadata": {"uid": "u", "creationTimestamp": "2026-11-27T02:00:00Z"},
        "spec": {"mode": "Pull", "tokenSecretRef": "t", "ttlDuration": "90m"},
    });
    merged(whole, changes)
}

/// The time of the backup is over.
fn expired() -> Value {
    pull(&json!({"spec": {"ttlDuration": "30m"}}))
}

fn export(changes: &Value) -> Export {
    let whole = json!({
        "metadata": {"name": "b", "namespace": "n", "uid": "e"},
        "spec": {"source": {"kind": "VirtualMachineBackup", "name": "b"}},
    });
    let export: VirtualMachineExport = serde_json::from_value(merged(whole, changes)).unwrap();
    Export::Own(Arc::new(export))
}

fn ready() -> Export {
    let link = |base: &str, cert: &str| {
        json!({"cert": cert, "volumes": [], "backups": [{"name": "root", "endpoints": [
            {"endpoint": "data", "url": format!("{base}/exports/root/data")},
            {"endpoint": "map", "url": format!("{base}/exports/root/map")},
        ]}]})
    };
    export(&json!({"status": {"phase": "Ready", "links": {
        "internal": link("https://in", "I"), "external": link("https://out", "O"),
    }}}))
}

fn offered() -> Value {
    report(&json!({"backupMsg": "offered", "volumes": [{"volumeName": "root"}]}))
}

fn ended(members: &Value) -> Value {
    let done = json!({"completed": true, "volumes": [{"volumeName": "root"}]});
    report(&merged(done, members))
}

/// Disks were offered before.
fn was_offered() -> Value {
    pull(&json!({"status": {
        "conditions": [progressing("ExportReady")], "includedVolumes": [{"volumeName": "root"}],
    }}))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn offer_goes_on_until_its_time_is_over() {
    let none = json!({});
    let detached = |report: &Value| json!({"status": {"changedBlockTracking": report}});
    let over =
        |report: &Value| json!({"status": {"phase": "Failed", "changedBlockTracking": report}});
    let lost = "SourceLost: the guest ended while its disks were offered";
    let cases: Vec<(Value, Value, Export, &str)> = vec![
        (pull(&none), json!({}), Export::None, "Attach"),
        (
            expired(),
            json!({}),
            Export::None,
            "Failed: its time was over before",
        ),
        (
            pull(&none),
            attached("MountedToPod", &json!(null)),
            Export::None,
            "Begin",
        ),
        (
            pull(&none),
            attached("MountedToPod", &report(&none)),
            Export::None,
            "copies: the disks are about to be offered",
        ),
        (
            pull(&none),
            attached("MountedToPod", &offered()),
            Export::None,
            "Offer",
        ),
        (
            pull(&none),
            attached("MountedToPod", &offered()),
            Export::Foreign,
            "offers: VirtualMachineExport b does not belong to the backup",
        ),
        (
            pull(&none),
            attached("MountedToPod", &offered()),
            export(&json!({"status": {"conditions": [
                {"type": "Ready", "status": "False", "message": "no node"}]}})),
            "offers: VirtualMachineExport b: no node",
        ),
        (
            pull(&none),
            attached("MountedToPod", &offered()),
            export(&json!({"metadata": {"deletionTimestamp": "2026-11-27T02:59:00Z"}})),
            "offers: VirtualMachineExport b is being deleted",
        ),
        (
            was_offered(),
            attached("MountedToPod", &offered()),
            ready(),
            "Offered",
        ),
        // The end of its time.
        (
            expired(),
            attached("MountedToPod", &offered()),
            ready(),
            "Withdraw",
        ),
        (
            expired(),
            attached("MountedToPod", &offered()),
            Export::None,
            "Detach",
        ),
        (expired(), leaving(&offered()), Export::None, "Expired"),
        (was_offered(), leaving(&ended(&none)), Export::None, "Kept"),
        (was_offered(), detached(&ended(&none)), ready(), "Withdraw"),
        (
            was_offered(),
            detached(&ended(&none)),
            Export::None,
            "Complete",
        ),
        // No client could have read the disks.
        (
            pull(&none),
            detached(&ended(&none)),
            Export::None,
            "Failed: the guest's node did not offer the disks",
        ),
        (
            expired(),
            detached(&ended(&none)),
            Export::None,
            "Failed: its time was over before",
        ),
        (
            was_offered(),
            detached(&ended(&json!({"failed": true, "backupMsg": "no space"}))),
            Export::None,
            "Failed: no space",
        ),
        (was_offered(), over(&offered()), ready(), lost),
        (was_offered(), json!({}), ready(), lost),
    ];
    for (backup, guest, export, expected) in cases {
        let observed = Observed {
            export,
            ..seen(&backup, &guest)
        };
        let found = shown(&plan(&observed));
        assert!(
            found.starts_with(expected),
            "{found}, not {expected}: {backup} {guest}"
        );
    }
}

#[test]
fn deletion_withdraws_the_export_before_the_claim_leaves() {
    let deleted = pull(&json!({"metadata": {"deletionTimestamp": "2026-11-27T02:59:00Z"}}));
    let finished = merged(pull(&json!({})), &complete());
    for backup in [deleted, finished] {
        let mut observed = Observed {
            export: ready(),
            ..seen(&backup, &attached("MountedToPod", &offered()))
        };
        assert_eq!(shown(&plan(&observed)), "Withdraw");
        observed.export = Export::None;
        assert_eq!(shown(&plan(&observed)), "Detach");
    }
}

#[test]
fn status_has_the_addresses_while_they_can_be_used() {
    let observed = Observed {
        export: ready(),
        ..seen(&pull(&json!({})), &attached("MountedToPod", &offered()))
    };
    let status = json!(render(&observed, &Progress::Offered));
    let expected = json!([{
        "volumeName": "root", "dataEndpoint": "https://out/exports/root/data",
        "mapEndpoint": "https://out/exports/root/map",
    }]);
    assert_eq!(status["includedVolumes"], expected);
    assert_eq!(
        (
            &status["endpointCert"],
            &status["exportUID"],
            &status["type"]
        ),
        (&json!("O"), &json!("e"), &json!("Full"))
    );
    let conditions = status["conditions"].as_array().unwrap();
    assert_eq!(conditions[0]["reason"], "ExportReady");

    let after = seen(&pull(&json!({"status": status})), &json!({}));
    for progress in [Progress::Complete, Progress::Offering("m".to_owned())] {
        let status = json!(render(&after, &progress));
        assert_eq!(status["endpointCert"], Value::Null, "{progress:?}");
        let volumes = status["includedVolumes"].as_array();
        let mut volumes = volumes.into_iter().flatten();
        assert!(
            volumes.all(|one| one["dataEndpoint"].is_null()),
            "{progress:?}"
        );
    }
}

/// A tracker has no part in it: the client keeps the blocks, and QEMU the bitmaps of others.
#[test]
fn mode_is_requested_by_an_annotation_that_goes_with_the_backup() {
    let tracked = json!({"spec": {"source": {
        "apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": "t"}}});
    let observed = seen(&merged(pull(&json!({})), &tracked), &json!({}));
    let begun = begin_patch(&observed)["metadata"]["annotations"].clone();
    assert_eq!(begun["ferrovirt.io/backup-mode"], "Pull");
    assert_eq!(begun["ferrovirt.io/requested-checkpoint"], Value::Null);
    let left = forget_patch(&observed)["metadata"]["annotations"].clone();
    assert_eq!(left["ferrovirt.io/backup-mode"], Value::Null);
    let pushed = begin_patch(&seen(&json!({}), &json!({})));
    assert_eq!(
        pushed["metadata"]["annotations"]["ferrovirt.io/backup-mode"],
        Value::Null
    );
}

#[test]
fn export_has_the_token_and_the_time_of_the_backup() {
    let observed = seen(&pull(&json!({})), &json!({}));
    let export = super::pull::export(&observed);
    let expected = json!({
        "source": {"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackup", "name": "b"},
        "tokenSecretRef": "t",
        // Half an hour is left, and five minutes are added.
        "ttlDuration": "2100s",
    });
    assert_eq!(export["spec"], expected);
    let owner = &export["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["uid"], &owner["controller"]),
        (&json!("u"), &json!(true))
    );
}
