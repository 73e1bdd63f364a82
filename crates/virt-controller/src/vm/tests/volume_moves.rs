//! What becomes of volumes whose claims change in the template of a running guest.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{observe, set, vm, vmi};
use crate::view::Claim;
use crate::vm::observe::Observed;
use crate::vm::plan::{Step, plan};
use crate::vm::volume_moves::{Moves, Moving, concern, plan as moves_of};

fn template(claim: &str) -> Value {
    json!({
        "domain": {"devices": {"disks": [
            {"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}},
        ]}},
        "volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    })
}

/// A VM whose template has that claim; `recorded` is the one that its status has as a destination.
fn wanted(claim: &str, recorded: Option<&str>) -> Value {
    let mut vm = set(vm("Always"), "/spec/template/spec", template(claim));
    vm["spec"]["updateVolumesStrategy"] = "Migration".into();
    if let Some(recorded) = recorded {
        vm["status"]["volumeUpdateState"] =
            json!({"volumeMigrationState": {"migratedVolumes": list(recorded)}});
    }
    vm
}

fn list(claim: &str) -> Value {
    json!([{"volumeName": "root", "sourcePVCInfo": {"claimName": "old"},
        "destinationPVCInfo": {"claimName": claim}}])
}

/// A running guest on claim `old`.
fn guest() -> Value {
    let mut guest = vmi("Running");
    guest["spec"] = template("old");
    guest["status"]["conditions"] = json!([{"type": "LiveMigratable", "status": "True"}]);
    guest
}

/// A guest whose volume is to move to `new`.
fn listed(wanted: &str, state: Value) -> Value {
    let mut guest = guest();
    guest["status"]["conditions"] = json!([{"type": "LiveMigratable", "status": "True"},
        {"type": "VolumesChange", "status": wanted}]);
    guest["status"]["migratedVolumes"] = list("new");
    guest["status"]["migrationState"] = state;
    guest["metadata"]["annotations"]["ferrovirt.io/volumes-carried-by"] = "m".into();
    guest
}

fn observed(vm: Value, guest: Option<Value>) -> Observed {
    let mut observed = observe(vm, guest.clone());
    let claim = |name: &str| {
        let claim = json!({"metadata": {"name": name}, "status": {"phase": "Bound"}});
        Arc::new(serde_json::from_value::<Claim>(claim).unwrap())
    };
    observed.claims = ["new", "third"].map(claim).to_vec();
    let own = observed.own_vmi().cloned();
    if let Some(whole) = guest.filter(|_| own.is_some_and(|own| concern(&observed.vm, &own))) {
        observed.moving = Some(Moving {
            conditions: whole["status"]["conditions"].clone(),
            vmi: Box::new(serde_json::from_value(whole).unwrap()),
        });
    }
    observed
}

fn moves(vm: Value, guest: Option<Value>) -> Moves {
    moves_of(&observed(vm, guest))
}

fn destinations(moves: &Moves) -> Vec<&str> {
    let all = moves.recorded.iter();
    let all = all.filter_map(|one| one.destination_pvc_info.as_ref()?.claim_name.as_deref());
    all.collect()
}

#[test]
fn move_is_recorded_on_the_vm_before_the_vmi_gets_it() {
    let first = moves(wanted("new", None), Some(guest()));
    assert_eq!(
        (destinations(&first), first.patch.is_some()),
        (vec!["new"], false)
    );
    let second = moves(wanted("new", Some("new")), Some(guest()));
    let patch = second.patch.as_ref().unwrap();
    assert_eq!(patch["status"]["migratedVolumes"], list("new"));
    assert_eq!(patch["status"]["conditions"][1]["type"], "VolumesChange");
    assert_eq!(patch["status"]["conditions"][1]["status"], "True");
    // An earlier migration did not carry it.
    let annotations = &patch["metadata"]["annotations"];
    assert_eq!(
        *annotations,
        json!({"ferrovirt.io/volumes-carried-by": null})
    );
    let plan = plan(&observed(wanted("new", Some("new")), Some(guest())));
    assert!(
        plan.steps.contains(&Step::FollowVolumes),
        "{:?}",
        plan.steps
    );
    let is_note = |step: &Step| matches!(step, Step::NoteGeneration(_));
    assert!(!plan.steps.iter().any(is_note), "{:?}", plan.steps);
}

#[test]
fn vmi_with_a_list_stays_as_it_is_wanted_and_is_cleared_otherwise() {
    let open = || json!({"migrationUid": "m"});
    let failed = || json!({"migrationUid": "m", "completed": true, "failed": true});
    // Template, condition, migration: the new status of the condition, whether the list is removed.
    for (template, holds, state, expected) in [
        ("new", "True", open(), None),
        ("new", "True", failed(), None),
        ("new", "True", Value::Null, None),
        ("old", "True", open(), Some(("False", false))),
        ("third", "True", open(), Some(("False", false))),
        // The list stays until the migration is over.
        ("old", "False", open(), None),
        ("new", "False", open(), None),
        ("old", "False", failed(), Some(("False", true))),
        ("old", "True", Value::Null, Some(("False", true))),
        ("third", "True", failed(), Some(("False", true))),
        ("new", "False", failed(), Some(("False", true))),
    ] {
        let case = format!("{template} {holds} {state}");
        let moves = moves(wanted(template, Some("new")), Some(listed(holds, state)));
        assert_eq!(destinations(&moves), ["new"], "{case}");
        let found = moves.patch.as_ref().map(|patch| {
            let status = &patch["status"];
            let condition = status["conditions"][1]["status"].as_str().unwrap();
            let removed = status.get("migratedVolumes").is_some_and(Value::is_null);
            assert_eq!(patch["metadata"].get("annotations").is_some(), removed);
            (condition, removed)
        });
        assert_eq!(found, expected, "{case}");
        assert_eq!(moves.refused, None, "{case}");
    }
}

#[test]
fn record_goes_when_the_guest_has_one_set_of_claims() {
    // It was taken back before it began.
    let back = moves(wanted("old", Some("new")), Some(guest()));
    assert_eq!(
        back,
        Moves {
            followed: back.followed.clone(),
            ..Moves::default()
        }
    );
    // It has moved.
    let moved = set(guest(), "/spec", template("new"));
    let done = moves(wanted("new", Some("new")), Some(moved.clone()));
    assert_eq!(
        done,
        Moves {
            followed: done.followed.clone(),
            ..Moves::default()
        }
    );
    assert!(done.followed.contains("root"));
    // The VMI does not show it yet.
    let arrived = listed("True", json!({"migrationUid": "m", "completed": true}));
    let waits = moves(wanted("new", Some("new")), Some(arrived));
    assert_eq!(destinations(&waits), ["new"]);
    assert_eq!(waits.patch, None);
}

#[test]
fn guest_does_not_start_on_a_claim_that_may_be_incomplete() {
    const SURE: &str = "The former claims have all of its data";
    const UNSURE: &str = "the former claims lack";
    let ended = |state: Value| {
        let guest = listed("True", state);
        set(guest, "/status/phase", "Failed".into())
    };
    let begun = || json!({"migrationUid": "m", "startTimestamp": "2026-11-21T12:00:00Z"});
    let over = || json!({"migrationUid": "m", "completed": true});
    let failed = || json!({"migrationUid": "m", "completed": true, "failed": true});
    for (template, guest, expected) in [
        ("new", None, Some(UNSURE)),
        ("new", Some(ended(begun())), Some(UNSURE)),
        ("new", Some(ended(failed())), Some(SURE)),
        ("new", Some(ended(json!({"migrationUid": "m"}))), Some(SURE)),
        ("new", Some(ended(over())), None),
        ("old", Some(ended(begun())), None),
        ("third", Some(ended(begun())), None),
        ("old", None, None),
        ("third", None, None),
    ] {
        let case = format!("{template} {guest:?}");
        let moves = moves(wanted(template, Some("new")), guest.clone());
        match expected {
            None => assert_eq!(moves, Moves::default(), "{case}"),
            Some(text) => {
                assert!(moves.recovery.as_ref().unwrap().contains(text), "{moves:?}");
                assert_eq!(destinations(&moves), ["new"], "{case}");
            }
        }
        if guest.is_none() {
            let starts = plan(&observed(wanted(template, Some("new")), None));
            let creates = starts.steps.contains(&Step::CreateVmi);
            assert_eq!(creates, expected.is_none(), "{case}");
        }
    }
    // A user who asks for other claims without a copy has seen to their contents.
    let replaced = set(
        wanted("new", Some("new")),
        "/spec/updateVolumesStrategy",
        "Replacement".into(),
    );
    assert_eq!(moves(replaced, None), Moves::default());
}

#[test]
fn volumes_that_cannot_move_need_a_restart() {
    let disk = |change: Value| {
        let mut guest = guest();
        for (name, value) in change.as_object().unwrap() {
            guest["spec"]["domain"]["devices"]["disks"][0][name] = value.clone();
        }
        guest
    };
    let immobile = |conditions: Value| set(guest(), "/status/conditions", conditions);
    let volumes = |modes: Value| {
        let mut guest = immobile(json!([
            {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]));
        guest["status"]["volumeStatus"] = json!([{"name": "data", "target": "vdb",
            "persistentVolumeClaimInfo": {"claimName": "data", "accessModes": modes}}]);
        guest
    };
    for (guest, expected) in [
        (disk(json!({"shareable": true})), Some("shareable: [root]")),
        (
            disk(json!({"disk": null, "lun": {"bus": "scsi"}})),
            Some("luns: [root]"),
        ),
        (
            disk(json!({"disk": null, "cdrom": {"bus": "sata"}})),
            Some("read-only: [root]"),
        ),
        (
            immobile(
                json!([{"type": "StorageLiveMigratable", "status": "False", "message": "a GPU"},
                {"type": "LiveMigratable", "status": "False"}]),
            ),
            Some("cannot migrate: a GPU"),
        ),
        (
            volumes(json!(["ReadWriteOnce"])),
            Some("volume data is on a claim without"),
        ),
        (volumes(json!(["ReadWriteMany"])), None),
    ] {
        let found = moves(wanted("new", None), Some(guest.clone()));
        let refused = found.refused.as_deref();
        match expected {
            Some(expected) => assert!(refused.unwrap().contains(expected), "{found:?}"),
            None => assert_eq!(refused, None, "{guest}"),
        }
        assert_eq!(
            destinations(&found).is_empty(),
            expected.is_some(),
            "{guest}"
        );
    }
    // It has that claim under another name.
    let twice = moves(wanted("data", None), Some(guest()));
    assert!(
        twice
            .refused
            .unwrap()
            .contains("another volume of the guest has claim data")
    );
}

#[test]
fn disk_of_another_vm_is_not_overwritten() {
    for (owner, is_refused) in [("other", true), ("vm-uid", false)] {
        let mut seen = observed(wanted("new", None), Some(guest()));
        let there = json!({"metadata": {"name": "new", "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "b", "uid": owner,
                "controller": true}]}, "spec": {}, "status": {"phase": "Succeeded"}});
        seen.data_volumes = vec![Arc::new(serde_json::from_value(there).unwrap())];
        let found = moves_of(&seen);
        let refused = found.refused.unwrap_or_default();
        assert_eq!(
            refused.contains("data volume new belongs to virtualmachine b"),
            is_refused,
            "{refused}"
        );
    }
}

#[test]
fn move_waits_for_guest_and_claims() {
    let mut moving = guest();
    moving["status"]["migrationState"] = json!({"migrationUid": "other"});
    let unknown = set(guest(), "/status/conditions", json!([]));
    let starting = set(guest(), "/status/phase", "Scheduled".into());
    let backed_up = set(
        guest(),
        "/status/conditions",
        json!([{"type": "LiveMigratable", "status": "False", "reason": "BackupInProgress"},
            {"type": "StorageLiveMigratable", "status": "False", "message": "a backup"}]),
    );
    for (template, guest, expected, recorded) in [
        ("new", moving, "the guest is migrating", &["new"][..]),
        ("new", unknown, "not known yet", &["new"]),
        ("new", backed_up, "a backup of the guest", &["new"]),
        (
            "missing",
            guest(),
            "there is no persistentvolumeclaim missing",
            &["missing"],
        ),
        // It may never start: whoever corrects a claim is not asked whether it is complete.
        ("new", starting, "does not run yet", &[]),
    ] {
        let found = moves(wanted(template, None), Some(guest.clone()));
        assert!(
            found.waits.as_ref().unwrap().contains(expected),
            "{found:?}"
        );
        assert_eq!(destinations(&found), recorded, "{expected}");
        assert_eq!(found.patch, None, "{expected}");
        // It ends as it waits: the next guest does not get the claim, which nothing was copied to.
        let ended = set(guest, "/status/phase", "Failed".into());
        let recorded = recorded.first().copied();
        let ended = moves(wanted(template, recorded), Some(ended));
        let recovery = ended.recovery.unwrap_or_default();
        assert_eq!(
            recovery.contains("The former claims have all of its data"),
            recorded.is_some(),
            "{recovery}"
        );
    }
}

#[test]
fn without_the_strategy_nothing_moves() {
    let vm = set(
        wanted("new", None),
        "/spec/updateVolumesStrategy",
        "Replacement".into(),
    );
    let found = moves(vm, Some(guest()));
    assert_eq!(
        found,
        Moves {
            followed: found.followed.clone(),
            ..Moves::default()
        }
    );
    assert!(!found.followed.contains("root"));
}
