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
use super::volumes::{Backing, Filled, Verdict, judge};

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

fn see(vmi: Value, pod: Option<Value>) -> Observed {
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
                let plan = plan(&see(vmi, name.map(pod)));
                let kept = if is_deleting { "deleting" } else { "kept" };
                let case = format!("{kept} {phase:?} pod {}:", name.unwrap_or("none"));
                let wait = plan.look_again_in.map(|wait| format!(" again in {wait:?}"));
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
fn nothing_starts_without_what_it_asks_for() {
    let mut asking = vmi("Pending");
    asking["spec"]["volumes"] = json!([
        {"name": "a", "downwardMetrics": {}},
        {"name": "b", "emptyDisk": {"capacity": "1Gi"}},
    ]);
    asking["spec"]["domain"] = json!({"devices": {"tpm": {}}});
    let seen = see(asking.clone(), None);
    let wanted = plan(&seen);
    assert!(wanted.steps.is_empty(), "{:?}", wanted.steps);
    assert_eq!(wanted.phase, Phase::Pending);
    let message = "this version cannot run it yet: spec.volumes[0].downwardMetrics: leave it \
                   out; spec.domain.devices.tpm: leave it out";
    let problem = wanted.problem.clone().unwrap();
    assert_eq!(problem.message, message);
    let status = status::render(&seen, &wanted, &Done::default());
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

    // It can be deleted like any other, and once it could run nothing is said any more.
    assert_eq!(plan(&see(deleting(asking), None)).phase, Phase::Failed);
    let mut can_run = vmi("Pending");
    can_run["status"]["conditions"] = json!(status.conditions);
    let seen = see(can_run, None);
    let wanted = plan(&seen);
    assert_eq!(wanted.steps, [Step::CreatePod]);
    let status = status::render(&seen, &wanted, &Done::default());
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.reason.as_deref() != Some("FeatureNotSupported"))
    );
}

#[test]
fn pod_being_deleted_is_not_waited_for_before_the_handover() {
    let seen = see(vmi("Scheduling"), Some(deleting(pod("Running"))));
    assert_eq!(plan(&seen).phase, Phase::Failed);
    let seen = see(vmi("Running"), Some(deleting(pod("Running"))));
    assert_eq!(plan(&seen).phase, Phase::Running);
}

#[test]
fn end_that_no_handler_records_is_recorded_after_a_moment() {
    for (state, end) in [("Succeeded", Phase::Succeeded), ("Failed", Phase::Failed)] {
        let mut seen = see(vmi("Running"), Some(pod(state)));
        assert_eq!(plan(&seen).look_again_in, Some(Duration::from_secs(3)));
        seen.now = now() + jiff::SignedDuration::from_secs(3);
        assert_eq!(plan(&seen).phase, end);
    }
}

#[test]
fn pod_that_failed_without_a_word_from_its_container_ends_the_guest_at_once() {
    let mut pod = pod("Failed");
    pod["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "ContainerCreating"}});
    assert_eq!(plan(&see(vmi("Running"), Some(pod))).phase, Phase::Failed);
}

#[test]
fn guest_that_no_handler_ends_is_ended_by_its_pod() {
    let mut seen = see(deleting(vmi("Running")), Some(pod("Running")));
    assert_eq!(plan(&seen).look_again_in, Some(Duration::from_secs(70)));
    seen.now = now() + jiff::SignedDuration::from_secs(70);
    assert_eq!(plan(&seen).steps, [Step::DeletePod]);
}

#[test]
fn pods_without_a_place_are_deleted() {
    let mut seen = see(vmi("Running"), Some(pod("Running")));
    seen.others = vec![Arc::new(serde_json::from_value(pod("Running")).unwrap())];
    assert_eq!(plan(&seen).steps, [Step::DeleteOthers]);
}

#[test]
fn no_pod_is_made_before_a_node_says_what_it_can_do() {
    let mut seen = see(vmi("Pending"), None);
    seen.acceleration = None;
    let plan = plan(&seen);
    assert!(plan.steps.is_empty() && plan.look_again_in.is_some());
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
        let seen = see(object.clone(), pod);
        let status = status::render(&seen, &plan(&seen), &done);
        if let Some(fragment) = status::fragment(&seen.vmi, &key, &status) {
            object["status"] = fragment["status"].clone();
            fragments.push(fragment);
        }
    }
    assert_eq!(fragments.len(), 2);
    insta::assert_json_snapshot!(fragments);
}

#[test]
fn reasons_of_a_pod_that_does_not_start_are_told() {
    let mut waiting = pod("Pending");
    waiting["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}});
    waiting["status"]["conditions"] = json!([
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    ]);
    let seen = see(vmi("Scheduling"), Some(waiting));
    let told = status::render(&seen, &plan(&seen), &Done::default());
    insta::assert_json_snapshot!(told.conditions);

    // Gone again when the pod gets on.
    let mut object = vmi("Scheduling");
    object["status"]["conditions"] = json!(told.conditions);
    let seen = see(object, Some(pod("Pending")));
    let told = status::render(&seen, &plan(&seen), &Done::default());
    assert_eq!(told.conditions.len(), 1);
}

#[test]
fn ready_is_the_handlers_word_once_the_guest_runs() {
    let ready = |before: &str, phase: &str, said: Value, pod: Option<Value>| {
        let mut object = vmi(before);
        object["status"]["conditions"] = said;
        let seen = see(object, pod);
        let mut wanted = plan(&seen);
        wanted.phase = Phase::from(phase);
        let status = status::render(&seen, &wanted, &Done::default());
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
        // Of a node that is cut off nobody else says so.
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

/// Whether a volume is a data volume's, and its phase if that exists.
enum By {
    Nothing,
    Missing,
    Phase(&'static str),
}

/// A volume on a claim, if that exists.
fn backing(claim: Option<&str>, filled: &By) -> Backing {
    let object = |phase: &str| json!({"metadata": {"name": "x"}, "status": {"phase": phase}});
    Backing {
        volume: "data".to_owned(),
        claim_name: "x".to_owned(),
        claim: claim.map(|phase| Arc::new(serde_json::from_value(object(phase)).unwrap())),
        data_volume: match filled {
            By::Nothing => Filled::Already,
            By::Missing => Filled::By(None),
            By::Phase(phase) => Filled::By(Some(Arc::new(
                serde_json::from_value(object(phase)).unwrap(),
            ))),
        },
    }
}

#[test]
fn no_pod_is_made_before_claims_exist_and_are_filled() {
    let missing = "volume data: there is no persistentvolumeclaim x";
    let cases = [
        (
            backing(None, &By::Nothing),
            Verdict::Missing(missing.to_owned()),
        ),
        // Bound or not: a node may have to be chosen first.
        (backing(Some("Pending"), &By::Nothing), Verdict::Ready),
        (backing(Some("Bound"), &By::Nothing), Verdict::Ready),
        (
            backing(None, &By::Missing),
            Verdict::Missing(missing.to_owned()),
        ),
        (
            {
                let mut seen = backing(Some("Bound"), &By::Missing);
                let owned = json!({"metadata": {"name": "x", "ownerReferences": [{
                    "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                    "name": "x", "uid": "u", "controller": true,
                }]}});
                seen.claim = Some(Arc::new(serde_json::from_value(owned).unwrap()));
                seen
            },
            Verdict::Filling("data volume x is not seen yet".to_owned()),
        ),
        // The importer removed its data volume once it was done.
        (backing(Some("Bound"), &By::Missing), Verdict::Ready),
        (
            backing(Some("Bound"), &By::Phase("Succeeded")),
            Verdict::Ready,
        ),
        (
            backing(Some("Pending"), &By::Phase("PendingPopulation")),
            Verdict::Ready,
        ),
        (
            backing(None, &By::Phase("ImportInProgress")),
            Verdict::Filling("data volume x is ImportInProgress".to_owned()),
        ),
        (
            backing(Some("Pending"), &By::Phase("WaitForFirstConsumer")),
            Verdict::FirstConsumer("data volume x is WaitForFirstConsumer".to_owned()),
        ),
        // There is nothing yet that a pod could use.
        (
            backing(None, &By::Phase("WaitForFirstConsumer")),
            Verdict::Filling("data volume x is WaitForFirstConsumer".to_owned()),
        ),
        (
            backing(Some("Bound"), &By::Phase("Failed")),
            Verdict::Failed("data volume x has failed".to_owned()),
        ),
    ];
    for (backing, expected) in cases {
        let text = format!("{backing:?}");
        assert_eq!(judge(&[backing]), expected, "{text}");
    }
}

#[test]
fn claim_that_waits_for_its_first_consumer_gets_one_before_the_guest_does() {
    let first = || backing(Some("Pending"), &By::Phase("WaitForFirstConsumer"));
    let coming = || backing(Some("Bound"), &By::Phase("ImportInProgress"));
    let filled = || backing(Some("Bound"), &By::Phase("Succeeded"));
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
        // One of two: the other is filled without.
        (
            "two",
            vec![filled(), first()],
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
            vec![filled()],
            Some("Succeeded"),
            &[Step::CreatePod][..],
            "Pending",
            false,
        ),
    ];
    for (case, backings, binder, steps, phase, is_binding) in cases {
        let mut seen = see(vmi("Pending"), None);
        seen.backings = backings;
        seen.binder = binder.map(|phase| Arc::new(serde_json::from_value(pod(phase)).unwrap()));
        let plan = plan(&seen);
        assert_eq!(plan.steps, steps, "{case}");
        assert_eq!(plan.phase.as_str(), phase, "{case}");
        assert_eq!(plan.is_binding, is_binding, "{case}");
        let status = status::render(&seen, &plan, &Done::default());
        let mut conditions = status.conditions.iter();
        let told = conditions.any(|one| one.type_.as_str() == "Provisioning");
        assert_eq!(told, is_binding, "{case}");
    }
}

#[test]
fn node_that_a_binding_pod_does_not_find_is_told() {
    let mut seen = see(vmi("Pending"), None);
    seen.backings = vec![backing(Some("Pending"), &By::Phase("WaitForFirstConsumer"))];
    let mut lost = pod("Pending");
    lost["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
                                           "reason": "Unschedulable", "message": "no room"}]);
    seen.binder = Some(Arc::new(serde_json::from_value(lost).unwrap()));
    let status = status::render(&seen, &plan(&seen), &Done::default());
    let mut conditions = status.conditions.iter();
    let told = conditions
        .find(|one| one.type_.as_str() == "PodScheduled")
        .unwrap();
    assert_eq!(told.reason.as_deref(), Some("Unschedulable"));
}

#[test]
fn missing_claims_and_data_volumes_are_told_in_conditions() {
    let told = |backing: Backing, has_data_volumes| {
        let mut seen = see(vmi("Pending"), None);
        let mut guest = seen.vmi.as_ref().clone();
        guest.has_data_volumes = has_data_volumes;
        seen.vmi = Arc::new(guest);
        seen.backings = vec![backing];
        let plan = plan(&seen);
        let status = status::render(&seen, &plan, &Done::default());
        let conditions = status.conditions.iter();
        let words = conditions.map(|condition| {
            format!(
                "{}={} {}",
                condition.type_.as_str(),
                condition.status,
                condition.reason.as_deref().unwrap_or_default()
            )
        });
        let words: Vec<String> = words.collect();
        (plan.phase, plan.steps, words.join(", "))
    };
    let (phase, steps, words) = told(backing(None, &By::Nothing), false);
    assert_eq!((phase, steps.as_slice()), (Phase::Pending, &[][..]));
    let expected = "Ready=False PodNotExists, Synchronized=False FailedPvcNotFound, \
                    PodScheduled=False Unschedulable";
    assert_eq!(words, expected);

    let (phase, steps, words) = told(backing(None, &By::Phase("ImportInProgress")), true);
    assert_eq!((phase, steps.as_slice()), (Phase::Pending, &[][..]));
    assert_eq!(
        words,
        "Ready=False PodNotExists, DataVolumesReady=False NotAllDVsReady"
    );

    let (phase, steps, words) = told(backing(Some("Bound"), &By::Phase("Succeeded")), true);
    assert_eq!(
        (phase, steps.as_slice()),
        (Phase::Pending, &[Step::CreatePod][..])
    );
    assert_eq!(
        words,
        "Ready=False PodNotExists, DataVolumesReady=True AllDVsReady"
    );

    let (phase, _, words) = told(backing(None, &By::Phase("Failed")), true);
    assert_eq!(phase, Phase::Failed);
    let expected = "Ready=False GuestNotRunning, Synchronized=False FailedDataVolumeImport, \
                    DataVolumesReady=False NotAllDVsReady";
    assert_eq!(words, expected);
}

#[test]
fn cpus_of_its_own_need_a_guaranteed_pod() {
    let mut dedicated = vmi("Scheduling");
    dedicated["spec"]["domain"] = json!({"cpu": {"dedicatedCpuPlacement": true}, "devices": {}});
    let seen = see(dedicated.clone(), Some(pod("Running")));
    let wanted = plan(&seen);
    assert_eq!(wanted.phase, Phase::Scheduling);
    assert_eq!(wanted.problem.unwrap().reason, "FailedGuaranteeResources");
    let mut guaranteed = pod("Running");
    guaranteed["status"]["qosClass"] = "Guaranteed".into();
    let seen = see(dedicated, Some(guaranteed));
    assert_eq!(plan(&seen).phase, Phase::Scheduled);
}

#[test]
fn guest_of_a_lost_node_fails_once_its_pod_is_given_up() {
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
        let mut seen = see(vmi("Running"), pod);
        seen.is_node_lost = true;
        let wanted = plan(&seen);
        assert_eq!(wanted.phase, phase);
        assert_eq!(wanted.reason.map(Reason::as_str), reason);
        assert!(wanted.reason.is_none_or(Reason::is_permanent));
        let status = status::render(&seen, &wanted, &Done::default());
        assert_eq!(status.reason.as_deref(), reason);
    }
}

#[test]
fn receiver_waits_without_a_pod_until_it_is_deleted() {
    let mut receiver = vmi("Pending");
    receiver["metadata"]["annotations"] = json!({"kubevirt.io/create-migration-target": "true"});
    let wanted = plan(&see(receiver, None));
    assert_eq!(
        (wanted.phase, wanted.steps.len()),
        (Phase::WaitingForSync, 0)
    );
    let wanted = plan(&see(vmi("WaitingForSync"), None));
    assert_eq!(wanted.phase, Phase::WaitingForSync);
    let wanted = plan(&see(deleting(vmi("WaitingForSync")), None));
    assert_eq!(wanted.phase, Phase::Failed);
}

#[test]
fn reasons_of_containers_that_run_before_the_others_are_told_too() {
    let mut waiting = pod("Pending");
    waiting["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "PodInitializing"}});
    waiting["status"]["initContainerStatuses"] = json!([
        {"name": "disk", "ready": false, "image": "i", "imageID": "", "restartCount": 0,
         "state": {"waiting": {"reason": "ImagePullBackOff", "message": "later"}}}
    ]);
    let seen = see(vmi("Scheduling"), Some(waiting));
    let status = status::render(&seen, &plan(&seen), &Done::default());
    let reasons = status.conditions.iter();
    let mut reasons = reasons.filter_map(|condition| condition.reason.as_deref());
    assert!(reasons.any(|reason| reason == "ImagePullBackOff"));
}

#[test]
fn why_a_disk_was_not_copied_is_told() {
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
        // It is not why the pod has failed.
        (ended("volumeroot-init", 0, "Completed", ""), None),
    ];
    for (container, expected) in cases {
        let mut failed = pod("Failed");
        let first = ended("container-disk-binary", 0, "Completed", "");
        failed["status"]["initContainerStatuses"] = json!([first, container]);
        let seen = see(vmi("Scheduling"), Some(failed));
        let plan = plan(&seen);
        assert_eq!(plan.phase, Phase::Failed);
        let status = status::render(&seen, &plan, &Done::default());
        let mut conditions = status.conditions.iter();
        let told = conditions.find(|condition| condition.type_.as_str() == "Synchronized");
        let told = told.map(|told| {
            (
                told.reason.clone().unwrap_or_default(),
                told.message.clone().unwrap_or_default(),
            )
        });
        let expected = expected.map(|(reason, message)| {
            let advised = reason.parse::<Reason>().unwrap().advise(message);
            (reason.to_owned(), advised)
        });
        assert_eq!(told, expected);
    }
}
