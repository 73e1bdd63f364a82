//! Plans and statuses of VMs with data volume templates.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::Key;
use serde_json::json;

use super::super::data_volumes::{self, Templated};
use super::super::plan::{Step, plan};
use super::super::status::{self, Done};
use super::{observe, set, vm};
use crate::data_source::Target;
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

/// Its claim goes with it, as soon as the guest does not use it any more.
#[test]
fn vm_starts_neither_from_a_data_volume_that_is_about_to_disappear_nor_from_that_of_another_vm() {
    // What is changed, and what the VM waits for.
    type Case = (fn(&mut DataVolume), Option<&'static str>);
    let observed_with = |change: fn(&mut DataVolume)| {
        let mut there = DataVolume::clone(
            templated("x", Some("Succeeded"), true)
                .data_volume
                .as_deref()
                .unwrap(),
        );
        change(&mut there);
        let mut observed = observe(vm("Always"), None);
        observed.templates = vec![Templated {
            data_volume: Some(Arc::new(there)),
            ..templated("x", None, true)
        }];
        observed
    };
    let changes: [Case; 6] = [
        (|_| {}, None),
        (
            |there| {
                let now = "2026-11-25T12:00:00Z".parse().unwrap();
                there.metadata.deletion_timestamp = Some(Time(now));
            },
            Some("data volume x is being deleted"),
        ),
        (
            |there| {
                there.metadata.owner_references.as_mut().unwrap()[0].uid = "before".to_owned();
            },
            Some("data volume x is being deleted"),
        ),
        (
            |there| {
                let owner = &mut there.metadata.owner_references.as_mut().unwrap()[0];
                (owner.name, owner.uid) = ("b".to_owned(), "other".to_owned());
            },
            Some(
                "data volume x belongs to virtualmachine b: choose another name in \
                 spec.dataVolumeTemplates",
            ),
        ),
        // As KubeVirt does.
        (
            |there| {
                let owner = &mut there.metadata.owner_references.as_mut().unwrap()[0];
                (owner.kind, owner.uid) = ("Importer".to_owned(), "other".to_owned());
            },
            None,
        ),
        (|there| there.metadata.owner_references = None, None),
    ];
    for (change, waits_for) in changes {
        let plan = plan(&observed_with(change));
        assert_eq!(plan.steps.contains(&Step::CreateVmi), waits_for.is_none());
        assert!(!plan.steps.contains(&Step::CreateDataVolume(0)));
        assert_eq!(plan.waits_for.as_deref(), waits_for);
    }
}

#[test]
fn vm_repeats_why_an_import_has_failed() {
    let there = json!({
        "metadata": {"name": "x"},
        "status": {"phase": "Failed", "conditions": [
            {"type": "Running", "status": "False", "reason": "DiskDoesNotFit", "message": "too large"}]},
    });
    let mut observed = observe(vm("Always"), None);
    observed.templates = vec![Templated {
        data_volume: Some(Arc::new(serde_json::from_value(there).unwrap())),
        ..templated("x", None, true)
    }];
    let waits = plan(&observed).waits_for;
    assert_eq!(
        waits.as_deref(),
        Some("data volume x has failed: too large")
    );
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
                     "annotations": {"cdi.kubevirt.io/allowClaimAdoption": "false",
                                     "ferrovirt.io/copy-permitted": "pvc/other/a"}},
        "spec": {"source": {"blank": {}}, "brandNew": 1},
        "status": {},
    });
    let owner = set(
        vm("Always"),
        "/spec/template/spec/priorityClassName",
        json!("high"),
    );
    let owner: Vm = serde_json::from_value(owner).unwrap();
    let copied = Target::Claim(Key::new("images", "fedora"));
    let permitted = data_volumes::body(&owner, "x", &template, Some(&copied));
    let note = &permitted["metadata"]["annotations"]["ferrovirt.io/copy-permitted"];
    assert_eq!(note, "pvc/images/fedora");
    insta::assert_json_snapshot!(data_volumes::body(&owner, "x", &template, None));
}
