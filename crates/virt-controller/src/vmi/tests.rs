//! Plans and statuses for states of a VMI and its pod.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use launcher_pod::Acceleration;
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::{Step, plan};
use super::status::{self, Done, PodFacts};

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
        others: Vec::new(),
        acceleration: Some(Acceleration::Emulation),
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
        {"name": "a", "hostDisk": {"path": "/a", "type": "Disk"}},
        {"name": "b", "emptyDisk": {"capacity": "1Gi"}},
    ]);
    asking["spec"]["domain"] = json!({"devices": {"tpm": {}}});
    let seen = see(asking.clone(), None);
    let wanted = plan(&seen);
    assert!(wanted.steps.is_empty(), "{:?}", wanted.steps);
    assert_eq!(wanted.phase, Phase::Pending);
    let message = "this version cannot run it yet: spec.volumes[0].hostDisk: use containerDisk or \
                   emptyDisk; spec.domain.devices.tpm: leave it out";
    assert_eq!(wanted.unsupported.as_deref(), Some(message));
    let done = Done {
        unsupported: wanted.unsupported,
        ..Done::default()
    };
    let status = status::render(&seen, &wanted.phase, &done);
    for (kind, reason) in [
        ("Synchronized", "FeatureNotSupported"),
        ("PodScheduled", "Unschedulable"),
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
    let status = status::render(&seen, &wanted.phase, &Done::default());
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
        let phase = if done.pod.is_some() {
            Phase::Scheduling
        } else {
            plan(&seen).phase
        };
        let status = status::render(&seen, &phase, &done);
        if let Some(fragment) = status::fragment(&seen.vmi, &key, &status) {
            object["status"] = json!(status);
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
    let told = status::render(&seen, &Phase::Scheduling, &Done::default());
    insta::assert_json_snapshot!(told.conditions);

    // Gone again when the pod gets on.
    let mut object = vmi("Scheduling");
    object["status"] = json!(told);
    let seen = see(object, Some(pod("Pending")));
    let told = status::render(&seen, &Phase::Scheduling, &Done::default());
    assert_eq!(told.conditions.len(), 1);
}

#[test]
fn ready_is_the_handlers_word_once_the_guest_runs() {
    let ready = |before: &str, phase: &str, said: Value, pod: Option<Value>| {
        let mut object = vmi(before);
        object["status"]["conditions"] = said;
        let seen = see(object, pod);
        let status = status::render(&seen, &Phase::from(phase), &Done::default());
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
