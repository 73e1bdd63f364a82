//! Conditions of a VMI, and how often its status is written.

use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use reasons::Reason;
use serde_json::{Value, json};

use super::{deleting, observe, pod, vmi};
use crate::vmi::observe::Observed;
use crate::vmi::plan::plan;
use crate::vmi::status::{self, Done, PodFacts};

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
            object["status"] = fragment.body()["status"].clone();
            fragments.push(fragment.body().clone());
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
fn unready_conditions_end_with_the_remedy() {
    let ready = |observed: &Observed, done: &Done| {
        let status = status::render(observed, &plan(observed), done);
        let mut all = status.conditions.into_iter();
        let ready = all.find(|condition| condition.type_.as_str() == "Ready");
        ready.and_then(|ready| ready.message).unwrap_or_default()
    };
    let abandoned = Done {
        is_abandoned: true,
        ..Done::default()
    };
    let message = ready(&observe(vmi("Pending"), None), &abandoned);
    let expected = Reason::PodNameTaken.advise("the guest has ended");
    assert_eq!(message, expected);

    let mut probed = pod("Running");
    let condition = &mut probed["status"]["conditions"][0];
    condition["status"] = "False".into();
    condition["reason"] = "ContainersNotReady".into();
    condition["message"] = "containers with unready status: [compute]".into();
    let mut running = vmi("Running");
    running["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let message = ready(&observe(running, Some(probed)), &Done::default());
    let expected = Reason::ContainersNotReady.advise("containers with unready status: [compute]");
    assert_eq!(message, expected);
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
        // A container of another component.
        (ended("injected", 1, "Error", "no settings"), None),
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

#[test]
fn running_guest_in_a_terminating_pod_is_not_ready() {
    let mut running = vmi("Running");
    running["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let observed = observe(running, Some(deleting(pod("Running"))));
    let status = status::render(&observed, &plan(&observed), &Done::default());
    assert_eq!(status.conditions[0].type_.as_str(), "Ready");
    assert_eq!(status.conditions[0].status, "False");
    assert_eq!(
        status.conditions[0].reason.as_deref(),
        Some("PodTerminating")
    );
}

#[test]
fn change_of_size_is_pending_until_the_guest_has_it_and_fails_once_it_has_more() {
    let pending = json!([{"type": "HotVCPUChange", "status": "True"}]);
    for (before, sockets, current, expected) in [
        (json!([]), 1, 1, None),
        (json!([]), 2, 1, Some("True")),
        (pending.clone(), 2, 1, Some("True")),
        (pending.clone(), 2, 2, None),
        // Taken back after the guest got them.
        (pending, 1, 2, Some("False")),
        (json!([]), 1, 2, Some("False")),
    ] {
        let mut object = vmi("Running");
        object["spec"]["domain"] =
            json!({"cpu": {"sockets": sockets, "maxSockets": 4}, "devices": {}});
        object["status"]["currentCPUTopology"] = json!({"sockets": current});
        object["status"]["conditions"] = before;
        let observed = observe(object, Some(pod("Running")));
        let shown = status::render(&observed, &plan(&observed), &Done::default()).conditions;
        let shown = shown
            .iter()
            .find(|one| one.type_.as_str() == "HotVCPUChange");
        let status = shown.map(|one| one.status.as_str());
        assert_eq!(status, expected, "{sockets} {current}");
        let message = shown
            .and_then(|one| one.message.as_deref())
            .unwrap_or_default();
        let is_explained = message.contains("until it is restarted");
        assert_eq!(is_explained, expected == Some("False"), "{message}");
    }
}
