//! Objects and statuses that the controller writes.

use kubevirt_api::vm_status::VirtualMachineStatus;
use serde_json::{Value, json};

use super::{NOW, observe, set, vm, vmi, with_volume};
use crate::vm::observe::Observed;
use crate::vm::plan::{Step, plan};
use crate::vm::status::{self, Done};
use crate::vm::{revision, template};

#[test]
fn vmi_is_the_template_with_unknown_fields() {
    let observed = observe(set(vm("Always"), "/spec/running", Value::Null), None);
    insta::assert_json_snapshot!(template::vmi(&observed.vm, &[]));
}

#[test]
fn revision_contains_all_fields() {
    let mut vm = vm("Always");
    vm["spec"]["updateVolumesStrategy"] = "Migration".into();
    vm["spec"]["unheardOf"] = json!({"a": 1});
    let observed = observe(vm, None);
    insta::assert_json_snapshot!(revision::body(
        &observed.vm,
        3,
        &revision::Choice::default()
    ));
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
    let mut observed = observe(both, None);
    let reported = |observed: &Observed| {
        let status = status::render(observed, &plan(observed), &Done::default());
        let all = status.volume_snapshot_statuses.into_iter();
        all.map(|one| (one.name, one.enabled, one.reason))
            .collect::<Vec<_>>()
    };
    let (data, root) = ("data".to_owned(), "root".to_owned());
    let only_claims = Some("only persistent volume claims support snapshots".to_owned());
    let missing = Some("its persistent volume claim does not exist".to_owned());
    assert_eq!(
        reported(&observed),
        [
            (data.clone(), false, missing),
            (root.clone(), false, only_claims.clone())
        ]
    );
    observed.copyable.insert(data.clone(), Ok(()));
    assert_eq!(
        reported(&observed),
        [(data, true, None), (root, false, only_claims)]
    );
}

#[test]
fn vm_is_not_started_while_its_disks_are_copied_or_replaced() {
    for (field, text) in [
        ("snapshotInProgress", "snapshot nightly is in progress"),
        ("restoreInProgress", "restore nightly is in progress"),
    ] {
        let locked = set(vm("Always"), &format!("/status/{field}"), json!("nightly"));
        let plan = plan(&observe(locked, None));
        assert!(!plan.steps.contains(&Step::CreateVmi), "{field}");
        assert!(plan.waits_for.unwrap().contains(text), "{field}");
    }
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
    assert!(status::fragment(&again.vm, &key, &rendered).is_none());
}

/// virt-api owns the list, too, so an apply without it would leave the last request in place.
#[test]
fn finished_requests_are_emptied_and_other_empty_fields_are_left_out() {
    let key = reconcile::Key::new("default", "a");
    let mut requested = vm("Halted");
    requested["status"] = json!({"stateChangeRequests": [{"action": "Stop", "uid": "u"}]});
    let observed = observe(requested, None);
    let status = VirtualMachineStatus::default();
    let fragment = status::fragment(&observed.vm, &key, &status).unwrap();
    assert_eq!(
        fragment.body()["status"],
        json!({"stateChangeRequests": []})
    );
}
