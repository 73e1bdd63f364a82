//! Migrations that carry volumes to other claims, or must not.

use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use serde_json::{Value, json};

use super::super::plan::plan;
use super::super::steps::Step;
use super::{check, guest, migration, observed, pod};

/// A guest whose volume is to move.
fn moving(state: Option<Value>, wanted: &str) -> Value {
    let mut vmi = guest(state);
    vmi["metadata"]["annotations"] = json!({"ferrovirt.io/volumes-carried-by": "m-uid"});
    vmi["status"]["conditions"] = json!([{"type": "VolumesChange", "status": wanted}]);
    vmi["status"]["migratedVolumes"] = json!([{"volumeName": "root",
        "sourcePVCInfo": {"claimName": "old"}, "destinationPVCInfo": {"claimName": "new"}}]);
    vmi
}

fn made_for(annotation: &str) -> Value {
    let mut pod = pod("Running");
    pod["metadata"]["annotations"] = json!({"ferrovirt.io/migrated-volumes": annotation});
    pod
}

#[test]
fn only_a_pod_that_was_made_for_the_wanted_claims_gets_the_guest() {
    const MOVES: &str = r#"{"root":["old","new"]}"#;
    for (vmi, annotation, is_right) in [
        (moving(None, "True"), MOVES, true),
        (moving(None, "True"), "{}", false),
        (moving(None, "True"), r#"{"root":["old","third"]}"#, false),
        (moving(None, "True"), "malformed", false),
        (moving(None, "False"), MOVES, false),
        (moving(None, "False"), "{}", true),
        (guest(None), "{}", true),
        (guest(None), MOVES, false),
    ] {
        let case = format!("{vmi} {annotation}");
        let seen = observed(
            migration("Scheduling"),
            Some(vmi),
            Some(made_for(annotation)),
        );
        let found = plan(&seen);
        let expected = is_right.then_some(Step::HandOver);
        assert_eq!(found.step, expected, "{case}");
        assert_eq!(found.phase == Phase::Failed, !is_right, "{case}");
    }
    // A pod of an earlier version is made for the claims that the guest has.
    let earlier = observed(
        migration("Scheduling"),
        Some(moving(None, "True")),
        Some(pod("Running")),
    );
    check(&earlier, &Phase::Failed, None);
}

#[test]
fn no_move_begins_before_the_spec_has_the_claims_of_the_guest() {
    let mut vmi = moving(Some(json!({"completed": true})), "True");
    vmi["metadata"]["annotations"] = json!({"ferrovirt.io/volumes-carried-by": "other"});
    vmi["status"]["migrationState"]["migrationUid"] = "other".into();
    for pod in [None, Some(made_for("{}"))] {
        let waits = observed(migration("Pending"), Some(vmi.clone()), pod);
        check(&waits, &Phase::Pending, None);
    }
}

#[test]
fn migration_ends_that_carries_volumes_which_are_to_stay() {
    let begun = || Some(json!({"startTimestamp": "2026-11-21T12:00:00Z"}));
    for (wanted, step) in [("True", None), ("False", Some(Step::RequestAbort))] {
        let vmi = moving(begun(), wanted);
        let seen = observed(migration("Running"), Some(vmi), Some(pod("Running")));
        check(&seen, &Phase::Running, step);
    }
    // Another one carried them.
    let mut vmi = moving(begun(), "False");
    vmi["metadata"]["annotations"] = json!({"ferrovirt.io/volumes-carried-by": "other"});
    let seen = observed(migration("Running"), Some(vmi), Some(pod("Running")));
    check(&seen, &Phase::Running, None);
}
