//! Plans and statuses for states of a VMI and its pod.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use launcher_pod::Acceleration;
use reasons::Reason;
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::{Step, plan};
use super::status::{self, Done, PodFacts};
use super::volumes::{Backing, DataSource, Readiness, readiness};

const NOW: &str = "2026-11-21T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn vmi(phase: &str) -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "default", "uid": "vmi-uid", "resourceVersion": "9",
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine", "keep"],
        },
        "spec": {"terminationGracePeriodSeconds": 10},
        "status": {"phase": phase},
    })
}

fn pod(phase: &str) -> Value {
    let state = match phase {
        "Running" => json!({"running": {"startedAt": NOW}}),
        "Succeeded" | "Failed" => {
            json!({"terminated": {"exitCode": 0, "finishedAt": "2026-11-21T11:59:58Z"}})
        }
        _ => json!({"waiting": {"reason": "ContainerCreating"}}),
    };
    json!({
        "metadata": {"name": "virt-launcher-a-x", "namespace": "default", "uid": "pod-uid"},
        "spec": {"nodeName": "node1"},
        "status": {
            "phase": phase, "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": if phase == "Running" {"True"} else {"False"}}],
            "containerStatuses": [{"name": "compute", "ready": phase == "Running", "image": "i",
                                   "imageID": "", "restartCount": 0, "state": state}],
        },
    })
}

fn deleting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = NOW.into();
    object
}

fn observe(vmi: Value, pod: Option<Value>) -> Observed {
    Observed {
        vmi: Arc::new(serde_json::from_value(vmi).unwrap()),
        pod: pod.map(|pod| Arc::new(serde_json::from_value(pod).unwrap())),
        binder: None,
        others: Vec::new(),
        backings: Vec::new(),
        acceleration: Some(Acceleration::Emulation),
        is_node_lost: false,
        now: now(),
    }
}

#[test]
fn phases_and_pods_over_the_whole_product() {
    let mut table = Vec::new();
    let pods = [
        None,
        Some("Pending"),
        Some("Running"),
        Some("Succeeded"),
        Some("Failed"),
    ];
    for is_deleting in [false, true] {
        for phase in [
            "",
            "Pending",
            "Scheduling",
            "Scheduled",
            "Running",
            "Succeeded",
            "Failed",
        ] {
            for name in pods {
                let vmi = if is_deleting {
                    deleting(vmi(phase))
                } else {
                    vmi(phase)
                };
                let plan = plan(&observe(vmi, name.map(pod)));
                let kept = if is_deleting { "deleting" } else { "kept" };
                let case = format!("{kept} {phase:?} pod {}:", name.unwrap_or("none"));
                let wait = plan.requeue_in.map(|wait| format!(" again in {wait:?}"));
                table.push(format!(
                    "{case:<38} {:?} {:?}{}",
                    plan.phase.as_str(),
                    plan.steps,
                    wait.unwrap_or_default()
                ));
            }
        }
    }
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn unsupported_vmi_gets_no_pod() {
    let mut asking = vmi("Pending");
    asking["spec"]["volumes"] = json!([
        {"name": "a", "downwardMetrics": {}},
        {"name": "b", "emptyDisk": {"capacity": "1Gi"}},
    ]);
    asking["spec"]["domain"] = json!({"devices": {"tpm": {}}});
    let observed = observe(asking.clone(), None);
    let wanted = plan(&observed);
    assert!(wanted.steps.is_empty(), "{:?}", wanted.steps);
    assert_eq!(wanted.phase, Phase::Pending);
    let message = "this version cannot run it yet: spec.volumes[0].downwardMetrics: leave it \
                   out; spec.domain.devices.tpm: leave it out";
    let problem = wanted.problem.clone().unwrap();
    assert_eq!(problem.message, message);
    let status = status::render(&observed, &wanted, &Done::default());
    let advised = Reason::FeatureNotSupported.advise(message);
    for (kind, reason, message) in [
        ("Synchronized", "FeatureNotSupported", advised.as_str()),
        ("PodScheduled", "Unschedulable", message),
    ] {
        let mut conditions = status.conditions.iter();
        let condition = conditions
            .find(|condition| condition.type_.as_str() == kind)
            .expect(kind);
        assert_eq!(condition.status, "False");
        assert_eq!(condition.reason.as_deref(), Some(reason));
        assert_eq!(condition.message.as_deref(), Some(message));
    }

    // It can be deleted like any other, and the conditions go once it is supported.
    assert_eq!(plan(&observe(deleting(asking), None)).phase, Phase::Failed);
    let mut can_run = vmi("Pending");
    can_run["status"]["conditions"] = json!(status.conditions);
    let observed = observe(can_run, None);
    let wanted = plan(&observed);
    assert_eq!(wanted.steps, [Step::CreatePod]);
    let status = status::render(&observed, &wanted, &Done::default());
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.reason.as_deref() != Some("FeatureNotSupported"))
    );
}

#[test]
fn terminating_pod_fails_the_vmi_before_the_handover() {
    let observed = observe(vmi("Scheduling"), Some(deleting(pod("Running"))));
    assert_eq!(plan(&observed).phase, Phase::Failed);
    let observed = observe(vmi("Running"), Some(deleting(pod("Running"))));
    assert_eq!(plan(&observed).phase, Phase::Running);
}

#[test]
fn end_is_recorded_without_virt_handler_after_a_grace_period() {
    for (state, end) in [("Succeeded", Phase::Succeeded), ("Failed", Phase::Failed)] {
        let mut observed = observe(vmi("Running"), Some(pod(state)));
        assert_eq!(plan(&observed).requeue_in, Some(Duration::from_secs(3)));
        observed.now = now() + jiff::SignedDuration::from_secs(3);
        assert_eq!(plan(&observed).phase, end);
    }
}

#[test]
fn failed_pod_without_end_time_fails_the_vmi_at_once() {
    let mut pod = pod("Failed");
    pod["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "ContainerCreating"}});
    assert_eq!(
        plan(&observe(vmi("Running"), Some(pod))).phase,
        Phase::Failed
    );
}

#[test]
fn pod_is_deleted_if_virt_handler_does_not_stop_the_guest() {
    let mut observed = observe(deleting(vmi("Running")), Some(pod("Running")));
    assert_eq!(plan(&observed).requeue_in, Some(Duration::from_secs(70)));
    observed.now = now() + jiff::SignedDuration::from_secs(70);
    assert_eq!(plan(&observed).steps, [Step::DeletePod]);
}

#[test]
fn other_pods_are_deleted() {
    let mut observed = observe(vmi("Running"), Some(pod("Running")));
    observed.others = vec![Arc::new(serde_json::from_value(pod("Running")).unwrap())];
    assert_eq!(plan(&observed).steps, [Step::DeleteOthers]);
}

#[test]
fn no_pod_is_created_before_a_node_reports_its_capabilities() {
    let mut observed = observe(vmi("Pending"), None);
    observed.acceleration = None;
    let plan = plan(&observed);
    assert!(plan.steps.is_empty() && plan.requeue_in.is_some());
}

#[test]
fn a_start_takes_two_writes() {
    let key = reconcile::Key::new("default", "a");
    let mut fragments = Vec::new();
    let mut object = vmi("Pending");
    let created = Done {
        pod: Some(PodFacts {
            image: "launcher:1".into(),
            overhead: 160 << 20,
        }),
        ..Done::default()
    };
    let mut scheduled = pod("Pending");
    scheduled["status"]["containerStatuses"] = json!([]);
    let steps = [
        (None, created),
        (Some(scheduled), Done::default()),
        (Some(pod("Pending")), Done::default()),
        (Some(pod("Running")), Done::default()),
        (Some(pod("Running")), Done::default()),
    ];
    for (pod, done) in steps {
        let observed = observe(object.clone(), pod);
        let status = status::render(&observed, &plan(&observed), &done);
        if let Some(fragment) = status::fragment(&observed.vmi, &key, &status) {
            object["status"] = fragment["status"].clone();
            fragments.push(fragment);
        }
    }
    assert_eq!(fragments.len(), 2);
    insta::assert_json_snapshot!(fragments);
}

#[test]
fn reasons_of_a_waiting_pod_are_reported() {
    let mut waiting = pod("Pending");
    waiting["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}});
    waiting["status"]["conditions"] = json!([
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    ]);
    let observed = observe(vmi("Scheduling"), Some(waiting));
    let reported = status::render(&observed, &plan(&observed), &Done::default());
    insta::assert_json_snapshot!(reported.conditions);

    // Removed when the pod makes progress.
    let mut object = vmi("Scheduling");
    object["status"]["conditions"] = json!(reported.conditions);
    let observed = observe(object, Some(pod("Pending")));
    let reported = status::render(&observed, &plan(&observed), &Done::default());
    assert_eq!(reported.conditions.len(), 1);
}

#[test]
fn virt_handler_owns_ready_once_the_guest_runs() {
    let ready = |before: &str, phase: &str, before_conditions: Value, pod: Option<Value>| {
        let mut object = vmi(before);
        object["status"]["conditions"] = before_conditions;
        let observed = observe(object, pod);
        let mut wanted = plan(&observed);
        wanted.phase = Phase::from(phase);
        let status = status::render(&observed, &wanted, &Done::default());
        let is_ready = |c: &&kubevirt_api::vmi_status::VirtualMachineInstanceCondition| {
            c.type_.as_str() == "Ready"
        };
        let ready = status.conditions.iter().find(is_ready).unwrap();
        format!(
            "{} {}",
            ready.status,
            ready.reason.as_deref().unwrap_or_default()
        )
    };
    let nothing = || json!([]);
    let paused = || json!([{"type": "Ready", "status": "False", "reason": "Paused"}]);
    let up = || Some(pod("Running"));
    let mut bare = pod("Running");
    bare["status"]["conditions"] = json!([]);
    let usable = || json!([{"type": "Ready", "status": "True"}]);
    let unready = || {
        let mut pod = pod("Running");
        pod["status"]["conditions"][0]["status"] = "False".into();
        pod
    };
    let mut probed = unready();
    probed["status"]["conditions"][0]["reason"] = "ContainersNotReady".into();
    let cases = [
        (
            ready("Pending", "Pending", nothing(), None),
            "False PodNotExists",
        ),
        (
            ready("Scheduled", "Scheduled", nothing(), up()),
            "False GuestNotRunning",
        ),
        (
            ready(
                "Scheduled",
                "Scheduled",
                nothing(),
                Some(deleting(pod("Running"))),
            ),
            "False PodTerminating",
        ),
        (ready("Running", "Running", nothing(), up()), "True "),
        (
            ready("Running", "Running", nothing(), Some(bare)),
            "False PodConditionMissing",
        ),
        (ready("Running", "Running", paused(), up()), "False Paused"),
        // virt-handler of an unreachable node cannot report it.
        (
            ready("Running", "Running", usable(), Some(unready())),
            "False ",
        ),
        (
            ready("Running", "Running", usable(), Some(probed)),
            "False ContainersNotReady",
        ),
        (
            ready("Running", "Running", paused(), Some(unready())),
            "False Paused",
        ),
        (ready("Running", "Running", usable(), up()), "True "),
        (
            ready("Running", "Failed", paused(), None),
            "False GuestNotRunning",
        ),
        (ready("Failed", "Failed", paused(), None), "False Paused"),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

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

#[test]
fn no_pod_is_created_before_claims_exist_and_are_populated() {
    let missing = "volume data: there is no persistentvolumeclaim x";
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

#[test]
fn dedicated_cpus_need_a_guaranteed_pod() {
    let mut dedicated = vmi("Scheduling");
    dedicated["spec"]["domain"] = json!({"cpu": {"dedicatedCpuPlacement": true}, "devices": {}});
    let observed = observe(dedicated.clone(), Some(pod("Running")));
    let wanted = plan(&observed);
    assert_eq!(wanted.phase, Phase::Scheduling);
    assert_eq!(wanted.problem.unwrap().reason, "FailedGuaranteeResources");
    let mut guaranteed = pod("Running");
    guaranteed["status"]["qosClass"] = "Guaranteed".into();
    let observed = observe(dedicated, Some(guaranteed));
    assert_eq!(plan(&observed).phase, Phase::Scheduled);
}

#[test]
fn guest_of_a_lost_node_fails_once_its_pod_is_evicted() {
    let mut collected = pod("Running");
    collected["status"]["phase"] = "Failed".into();
    for (pod, phase, reason) in [
        (Some(pod("Running")), Phase::Running, None),
        (
            Some(deleting(pod("Running"))),
            Phase::Failed,
            Some("NodeUnresponsive"),
        ),
        (None, Phase::Failed, Some("NodeUnresponsive")),
        (Some(collected), Phase::Failed, Some("NodeUnresponsive")),
    ] {
        let mut observed = observe(vmi("Running"), pod);
        observed.is_node_lost = true;
        let wanted = plan(&observed);
        assert_eq!(wanted.phase, phase);
        assert_eq!(wanted.reason.map(Reason::as_str), reason);
        assert!(wanted.reason.is_none_or(Reason::is_permanent));
        let status = status::render(&observed, &wanted, &Done::default());
        assert_eq!(status.reason.as_deref(), reason);
    }
}

#[test]
fn receiver_waits_without_a_pod_until_it_is_deleted() {
    let mut receiver = vmi("Pending");
    receiver["metadata"]["annotations"] = json!({"kubevirt.io/create-migration-target": "true"});
    let wanted = plan(&observe(receiver, None));
    assert_eq!(
        (wanted.phase, wanted.steps.len()),
        (Phase::WaitingForSync, 0)
    );
    let wanted = plan(&observe(vmi("WaitingForSync"), None));
    assert_eq!(wanted.phase, Phase::WaitingForSync);
    let wanted = plan(&observe(deleting(vmi("WaitingForSync")), None));
    assert_eq!(wanted.phase, Phase::Failed);
}

#[test]
fn reasons_of_init_containers_are_reported() {
    let mut waiting = pod("Pending");
    waiting["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "PodInitializing"}});
    waiting["status"]["initContainerStatuses"] = json!([
        {"name": "disk", "ready": false, "image": "i", "imageID": "", "restartCount": 0,
         "state": {"waiting": {"reason": "ImagePullBackOff", "message": "later"}}}
    ]);
    let observed = observe(vmi("Scheduling"), Some(waiting));
    let status = status::render(&observed, &plan(&observed), &Done::default());
    let reasons = status.conditions.iter();
    let mut reasons = reasons.filter_map(|condition| condition.reason.as_deref());
    assert!(reasons.any(|reason| reason == "ImagePullBackOff"));
}

#[test]
fn failed_disk_copy_is_reported() {
    let ended = |name: &str, code: i32, reason: &str, message: &str| {
        json!({"name": name, "ready": false, "image": "i", "imageID": "", "restartCount": 0,
               "state": {"terminated": {"exitCode": code, "reason": reason, "message": message}}})
    };
    let missing = "ContainerDiskMissing";
    let cases = [
        (
            ended("volumeroot-init", 3, "Error", "there is no file in /disk"),
            Some((missing, "volume root: there is no file in /disk")),
        ),
        (
            ended("volumeroot-init", 1, "Error", "write a copy: no space"),
            Some((
                "ContainerDiskNotCopied",
                "volume root: write a copy: no space",
            )),
        ),
        (
            ended("volumeroot-init", 137, "OOMKilled", ""),
            Some((
                "ContainerDiskNotCopied",
                "volume root: the copier ended with code 137 (OOMKilled)",
            )),
        ),
        (
            ended("container-disk-binary", 1, "Error", "no room"),
            Some((
                "ContainerDiskNotCopied",
                "container container-disk-binary: no room",
            )),
        ),
        // It did not fail.
        (ended("volumeroot-init", 0, "Completed", ""), None),
    ];
    for (container, expected) in cases {
        let mut failed = pod("Failed");
        let first = ended("container-disk-binary", 0, "Completed", "");
        failed["status"]["initContainerStatuses"] = json!([first, container]);
        let observed = observe(vmi("Scheduling"), Some(failed));
        let plan = plan(&observed);
        assert_eq!(plan.phase, Phase::Failed);
        let status = status::render(&observed, &plan, &Done::default());
        let mut conditions = status.conditions.iter();
        let reported = conditions.find(|condition| condition.type_.as_str() == "Synchronized");
        let reported = reported.map(|reported| {
            (
                reported.reason.clone().unwrap_or_default(),
                reported.message.clone().unwrap_or_default(),
            )
        });
        let expected = expected.map(|(reason, message)| {
            let advised = reason.parse::<Reason>().unwrap().advise(message);
            (reason.to_owned(), advised)
        });
        assert_eq!(reported, expected);
    }
}
