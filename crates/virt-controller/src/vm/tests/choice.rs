//! When the instance type and preference of a VM are recorded or expanded.

use kubevirt_api::cluster_config::InstancetypeReferencePolicy as Policy;
use serde_json::{Value, json};

use super::{observe, set, vm};
use crate::vm::instancetype::{ChoiceStep, Instance, choice_step};
use crate::vm::plan::{Step, plan};
use crate::vm::view::Vm;

#[test]
fn choice_is_resolved_before_the_start() {
    let chosen = set(vm("Always"), "/spec/instancetype", json!({"name": "small"}));
    let steps = |choice_step| {
        let mut observed = observe(chosen.clone(), None);
        observed.choice = choice_step;
        plan(&observed).steps
    };
    assert_eq!(steps(ChoiceStep::Nothing), [Step::CreateVmi]);
    assert_eq!(steps(ChoiceStep::Keep), [Step::KeepChoice, Step::CreateVmi]);
    assert_eq!(steps(ChoiceStep::Expand), [Step::ExpandChoice]);
    assert_eq!(
        steps(ChoiceStep::Upgrade),
        [Step::UpgradeChoice, Step::DropOutdated, Step::CreateVmi]
    );
}

#[test]
fn choice_step_depends_on_policy_status_and_guest() {
    let sized = |status: Value| {
        let vm = set(vm("Always"), "/spec/instancetype", json!({"name": "small"}));
        let vm = set(vm, "/status/instancetypeRef", status);
        serde_json::from_value::<Vm>(vm).unwrap()
    };
    let kind = "VirtualMachineClusterInstancetype";
    let kept = json!({"name": "small", "kind": kind, "controllerRevisionRef": {"name": "r"}});
    let other = json!({"name": "large", "kind": kind, "controllerRevisionRef": {"name": "r"}});
    for (status, instance, policy, wanted) in [
        (
            Value::Null,
            Instance::None,
            Policy::Reference,
            ChoiceStep::Keep,
        ),
        (
            Value::Null,
            Instance::Exists,
            Policy::Reference,
            ChoiceStep::Keep,
        ),
        (
            kept.clone(),
            Instance::None,
            Policy::Reference,
            ChoiceStep::Nothing,
        ),
        (other, Instance::None, Policy::Reference, ChoiceStep::Keep),
        (
            Value::Null,
            Instance::None,
            Policy::Expand,
            ChoiceStep::Expand,
        ),
        (
            kept.clone(),
            Instance::None,
            Policy::Expand,
            ChoiceStep::Nothing,
        ),
        (
            kept.clone(),
            Instance::None,
            Policy::ExpandAll,
            ChoiceStep::Expand,
        ),
        (
            kept,
            Instance::Exists,
            Policy::ExpandAll,
            ChoiceStep::Nothing,
        ),
    ] {
        let found = choice_step(&sized(status.clone()), instance, &policy);
        assert_eq!(found, wanted, "{status} {instance:?} {policy:?}");
    }
    let nameless = set(vm("Always"), "/spec/preference", json!({"kind": "Taste"}));
    let nameless: Vm = serde_json::from_value(nameless).unwrap();
    assert_eq!(
        choice_step(&nameless, Instance::None, &Policy::Expand),
        ChoiceStep::Keep
    );
    let plain: Vm = serde_json::from_value(vm("Always")).unwrap();
    assert_eq!(
        choice_step(&plain, Instance::None, &Policy::ExpandAll),
        ChoiceStep::Nothing
    );
}
