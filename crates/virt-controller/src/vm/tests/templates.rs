//! Plans and statuses of VMs with data volume templates.

use std::sync::Arc;

use serde_json::json;

use super::super::data_volumes::{self, Templated};
use super::super::plan::{Step, plan};
use super::super::status::{self, Done};
use super::{observe, set, vm};
use crate::view::DataVolume;
use crate::vm::view::Vm;

fn templated(name: &str, phase: Option<&str>, has_claim: bool) -> Templated {
    let data_volume = phase.map(|phase| {
        let owners = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                             "name": "a", "uid": "vm-uid", "controller": true}]);
        let there = json!({"metadata": {"name": name, "ownerReferences": owners},
                           "status": {"phase": phase}});
        Arc::new(serde_json::from_value::<DataVolume>(there).unwrap())
    });
    Templated {
        name: name.to_owned(),
        data_volume,
        has_claim,
        missing_source: None,
    }
}

#[test]
fn starts_wait_for_data_volumes_by_their_phase() {
    let ready = [
        Some("Succeeded"),
        Some("WaitForFirstConsumer"),
        Some("PendingPopulation"),
    ];
    for (phase, has_claim, starts) in ready.map(|phase| (phase, false, true)).into_iter().chain([
        (None, true, true),
        (None, false, false),
        (Some("Pending"), true, false),
        (Some(""), false, false),
        (Some("ImportInProgress"), true, false),
        (Some("Failed"), true, false),
        (Some("Brand New"), true, false),
    ]) {
        let mut observed = observe(vm("Always"), None);
        observed.templates = vec![templated("x", phase, has_claim)];
        let plan = plan(&observed);
        let case = format!("{phase:?} {has_claim}");
        assert_eq!(plan.steps.contains(&Step::CreateVmi), starts, "{case}");
        assert_eq!(plan.waits_for.is_some(), !starts, "{case}");
        let makes = plan.steps.contains(&Step::CreateDataVolume(0));
        assert_eq!(makes, phase.is_none() && !has_claim, "{case}");
        // It must not count as started, or the strategy Once would never start it.
        let status = status::render(&observed, &plan, &Done::default());
        assert_eq!(status.created, None, "{case}");
    }
}

#[test]
fn vm_that_runs_once_is_set_to_start_while_it_waits_for_data() {
    let mut fresh = vm("RerunOnFailure");
    fresh["status"] = json!({});
    let mut observed = observe(fresh, None);
    observed.templates = vec![templated("x", Some("ImportInProgress"), true)];
    let plan = plan(&observed);
    assert!(plan.waits_for.is_some());
    let status = status::render(&observed, &plan, &Done::default());
    assert_eq!(status.run_strategy, None);
}

#[test]
fn data_volume_is_its_template_with_owner_and_labels() {
    let template = json!({
        "metadata": {"name": "x", "labels": {"kubevirt.io/created-by": "forged", "a": "b"},
                     "annotations": {"cdi.kubevirt.io/allowClaimAdoption": "false"}},
        "spec": {"source": {"blank": {}}, "brandNew": 1},
        "status": {},
    });
    let owner = set(
        vm("Always"),
        "/spec/template/spec/priorityClassName",
        json!("high"),
    );
    let owner: Vm = serde_json::from_value(owner).unwrap();
    insta::assert_json_snapshot!(data_volumes::body(&owner, "x", &template));
}
