//! Claims and data volumes that a VMI waits for.

use std::sync::Arc;

use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use serde_json::{Value, json};

use super::{observe, pod, vmi};
use crate::vmi::plan::{Step, plan};
use crate::vmi::status::{self, Done};
use crate::vmi::volumes::{Backing, DataSource, Readiness, readiness};

/// The data volume of a claim and its phase.
enum Import {
    Nothing,
    Missing,
    Phase(&'static str),
}

/// A volume on a claim with that phase, if it exists.
fn backing(claim: Option<&str>, import: &Import) -> Backing {
    let object = |phase: &str| json!({"metadata": {"name": "x"}, "status": {"phase": phase}});
    Backing {
        volume: "data".to_owned(),
        claim_name: "x".to_owned(),
        claim: claim.map(|phase| Arc::new(serde_json::from_value(object(phase)).unwrap())),
        source: match import {
            Import::Nothing => DataSource::Claim,
            Import::Missing => DataSource::DataVolume(None),
            Import::Phase(phase) => DataSource::DataVolume(Some(Arc::new(
                serde_json::from_value(object(phase)).unwrap(),
            ))),
        },
    }
}

/// A volume on a claim that is the target of an upload, in that state.
fn uploading(state: &Value) -> Backing {
    let mut observed = backing(Some("Bound"), &Import::Nothing);
    let claim = json!({"metadata": {"name": "x", "annotations": {
        "cdi.kubevirt.io/storage.upload.target": "",
        "cdi.kubevirt.io/storage.pod.phase": state["phase"].as_str().unwrap_or_default(),
        "cdi.kubevirt.io/storage.condition.running.reason":
            state["reason"].as_str().unwrap_or_default(),
    }}});
    observed.claim = Some(Arc::new(serde_json::from_value(claim).unwrap()));
    observed
}

#[test]
fn no_pod_is_created_before_claims_exist_and_are_populated() {
    let missing = "volume data: there is no persistentvolumeclaim x";
    let upload = "volume data: persistentvolumeclaim x receives an upload";
    let cases = [
        (
            backing(None, &Import::Nothing),
            Readiness::Missing(missing.to_owned()),
        ),
        // Even if not bound: the scheduler may have to choose a node first.
        (backing(Some("Pending"), &Import::Nothing), Readiness::Ready),
        (backing(Some("Bound"), &Import::Nothing), Readiness::Ready),
        (
            backing(None, &Import::Missing),
            Readiness::Missing(missing.to_owned()),
        ),
        (
            {
                let mut observed = backing(Some("Bound"), &Import::Missing);
                let owned = json!({"metadata": {"name": "x", "ownerReferences": [{
                    "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                    "name": "x", "uid": "u", "controller": true,
                }]}});
                observed.claim = Some(Arc::new(serde_json::from_value(owned).unwrap()));
                observed
            },
            Readiness::Populating("data volume x is not observed yet".to_owned()),
        ),
        (
            uploading(&json!({"phase": "Running"})),
            Readiness::Uploading(upload.to_owned()),
        ),
        (
            uploading(&json!({"phase": "Pending"})),
            Readiness::Uploading(upload.to_owned()),
        ),
        // There is no pod, and there may be none before this one.
        (
            uploading(&json!({"phase": "Pending", "reason": "WaitForFirstConsumer"})),
            Readiness::Ready,
        ),
        (uploading(&json!({"phase": "Succeeded"})), Readiness::Ready),
        (uploading(&json!({})), Readiness::Ready),
        // The data volume was deleted after the import.
        (backing(Some("Bound"), &Import::Missing), Readiness::Ready),
        (
            backing(Some("Bound"), &Import::Phase("Succeeded")),
            Readiness::Ready,
        ),
        (
            backing(Some("Pending"), &Import::Phase("PendingPopulation")),
            Readiness::Ready,
        ),
        (
            backing(None, &Import::Phase("ImportInProgress")),
            Readiness::Populating("data volume x is ImportInProgress".to_owned()),
        ),
        (
            backing(Some("Pending"), &Import::Phase("WaitForFirstConsumer")),
            Readiness::FirstConsumer("data volume x is WaitForFirstConsumer".to_owned()),
        ),
        // There is no claim yet that a pod could use.
        (
            backing(None, &Import::Phase("WaitForFirstConsumer")),
            Readiness::Populating("data volume x is WaitForFirstConsumer".to_owned()),
        ),
        (
            backing(Some("Bound"), &Import::Phase("Failed")),
            Readiness::Failed("data volume x has failed".to_owned()),
        ),
    ];
    for (backing, expected) in cases {
        let text = format!("{backing:?}");
        assert_eq!(readiness(&[backing]), expected, "{text}");
    }
}

#[test]
fn claim_that_waits_for_its_first_consumer_gets_a_binding_pod() {
    let first = || backing(Some("Pending"), &Import::Phase("WaitForFirstConsumer"));
    let coming = || backing(Some("Bound"), &Import::Phase("ImportInProgress"));
    let import = || backing(Some("Bound"), &Import::Phase("Succeeded"));
    let none: &[Step] = &[];
    let cases = [
        (
            "nothing",
            vec![first()],
            None,
            &[Step::CreateBinder][..],
            "Pending",
            true,
        ),
        // One of two; the other is populated already.
        (
            "two",
            vec![import(), first()],
            None,
            &[Step::CreateBinder][..],
            "Pending",
            true,
        ),
        (
            "other comes",
            vec![coming(), first()],
            None,
            none,
            "Pending",
            false,
        ),
        (
            "starting",
            vec![first()],
            Some("Pending"),
            none,
            "Pending",
            true,
        ),
        (
            "over",
            vec![first()],
            Some("Succeeded"),
            none,
            "Pending",
            true,
        ),
        (
            "import",
            vec![coming()],
            Some("Succeeded"),
            none,
            "Pending",
            true,
        ),
        (
            "failed",
            vec![first()],
            Some("Failed"),
            none,
            "Failed",
            false,
        ),
        (
            "filled",
            vec![import()],
            Some("Succeeded"),
            &[Step::CreatePod][..],
            "Pending",
            false,
        ),
    ];
    for (case, backings, binder, steps, phase, is_binding) in cases {
        let mut observed = observe(vmi("Pending"), None);
        observed.backings = backings;
        observed.binder = binder.map(|phase| Arc::new(serde_json::from_value(pod(phase)).unwrap()));
        let plan = plan(&observed);
        assert_eq!(plan.steps, steps, "{case}");
        assert_eq!(plan.phase.as_str(), phase, "{case}");
        assert_eq!(plan.is_binding, is_binding, "{case}");
        let status = status::render(&observed, &plan, &Done::default());
        let mut conditions = status.conditions.iter();
        let reported = conditions.any(|one| one.type_.as_str() == "Provisioning");
        assert_eq!(reported, is_binding, "{case}");
    }
}

#[test]
fn unschedulable_binding_pod_is_reported() {
    let mut observed = observe(vmi("Pending"), None);
    observed.backings = vec![backing(
        Some("Pending"),
        &Import::Phase("WaitForFirstConsumer"),
    )];
    let mut lost = pod("Pending");
    lost["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
                                           "reason": "Unschedulable", "message": "no room"}]);
    observed.binder = Some(Arc::new(serde_json::from_value(lost).unwrap()));
    let status = status::render(&observed, &plan(&observed), &Done::default());
    let mut conditions = status.conditions.iter();
    let reported = conditions
        .find(|one| one.type_.as_str() == "PodScheduled")
        .unwrap();
    assert_eq!(reported.reason.as_deref(), Some("Unschedulable"));
}

#[test]
fn missing_claims_and_data_volumes_are_reported() {
    let reported = |backing: Backing, has_data_volumes| {
        let mut observed = observe(vmi("Pending"), None);
        let mut guest = observed.vmi.as_ref().clone();
        guest.has_data_volumes = has_data_volumes;
        observed.vmi = Arc::new(guest);
        observed.backings = vec![backing];
        let plan = plan(&observed);
        let status = status::render(&observed, &plan, &Done::default());
        let conditions = status.conditions.iter();
        let conditions = conditions.map(|condition| {
            format!(
                "{}={} {}",
                condition.type_.as_str(),
                condition.status,
                condition.reason.as_deref().unwrap_or_default()
            )
        });
        let conditions: Vec<String> = conditions.collect();
        (plan.phase, plan.steps, conditions.join(", "))
    };
    let (phase, steps, conditions) = reported(backing(None, &Import::Nothing), false);
    assert_eq!((phase, steps.as_slice()), (Phase::Pending, &[][..]));
    let expected = "Ready=False PodNotExists, Synchronized=False FailedPvcNotFound, \
                    PodScheduled=False Unschedulable";
    assert_eq!(conditions, expected);

    let (phase, steps, conditions) =
        reported(backing(None, &Import::Phase("ImportInProgress")), true);
    assert_eq!((phase, steps.as_slice()), (Phase::Pending, &[][..]));
    assert_eq!(
        conditions,
        "Ready=False PodNotExists, DataVolumesReady=False NotAllDVsReady"
    );

    let (phase, steps, conditions) =
        reported(backing(Some("Bound"), &Import::Phase("Succeeded")), true);
    assert_eq!(
        (phase, steps.as_slice()),
        (Phase::Pending, &[Step::CreatePod][..])
    );
    assert_eq!(
        conditions,
        "Ready=False PodNotExists, DataVolumesReady=True AllDVsReady"
    );

    let (phase, _, conditions) = reported(backing(None, &Import::Phase("Failed")), true);
    assert_eq!(phase, Phase::Failed);
    let expected = "Ready=False GuestNotRunning, Synchronized=False FailedDataVolumeImport, \
                    DataVolumesReady=False NotAllDVsReady";
    assert_eq!(conditions, expected);
}
