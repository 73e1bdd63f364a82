//! Deletion of a VM, and VMIs that it does not own.

use serde_json::json;

use super::{NOW, Printable, observe, printable, set, vm, vmi};
use crate::vm::plan::{Step, plan};
use crate::vm::status::Done;

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
