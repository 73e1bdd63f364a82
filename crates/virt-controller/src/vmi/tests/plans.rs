//! The phase and the steps for states of a VMI and its pod.

use std::sync::Arc;
use std::time::Duration;

use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use reasons::Reason;
use serde_json::{Value, json};

use super::{deleting, now, observe, pod, vmi};
use crate::vmi::plan::{Step, plan};
use crate::vmi::status::{self, Done};

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
fn guest_that_was_leaving_a_pod_that_is_gone_may_run_on_its_new_node() {
    for (state, end) in [
        (None, Phase::Failed),
        (Some("Succeeded"), Phase::Succeeded),
        (Some("Failed"), Phase::Failed),
    ] {
        let mut observed = observe(vmi("Running"), state.map(pod));
        observed.left_since = Some(now());
        let waiting = plan(&observed);
        assert_eq!(waiting.phase, Phase::Running, "{state:?}");
        assert_eq!(waiting.requeue_in, Some(Duration::from_mins(1)));
        observed.now = now() + jiff::SignedDuration::from_secs(60);
        assert_eq!(plan(&observed).phase, end, "{state:?}");
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

/// Clients that poll each second look for the phase.
#[test]
fn standalone_vmi_that_ended_well_is_shown_for_a_while() {
    let ended = |seconds_ago: i64, finalizers: Value| {
        let at = now() - jiff::SignedDuration::from_secs(seconds_ago);
        let mut vmi = deleting(vmi("Succeeded"));
        vmi["metadata"]["finalizers"] = finalizers;
        vmi["status"]["phaseTransitionTimestamps"] = json!([
            {"phase": "Running", "phaseTransitionTimestamp": at.to_string()},
            {"phase": "Succeeded", "phaseTransitionTimestamp": at.to_string()},
        ]);
        plan(&observe(vmi, None))
    };
    let ours = "kubevirt.io/foregroundDeleteVirtualMachine";
    let alone = ended(1, json!([ours]));
    assert_eq!(
        (alone.steps, alone.requeue_in),
        (vec![], Some(Duration::from_secs(2)))
    );
    assert_eq!(ended(3, json!([ours])).steps, [Step::RemoveFinalizer]);
    // By the clock of a machine that is minutes ahead.
    assert_eq!(ended(-400, json!([ours])).steps, [Step::RemoveFinalizer]);
    let of_vm = json!([ours, "kubevirt.io/virtualMachineControllerFinalize"]);
    assert_eq!(ended(1, of_vm).steps, [Step::RemoveFinalizer]);
}
